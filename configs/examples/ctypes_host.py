"""A host in Python, with nothing but ctypes: one prompt, printed as it is made.

    COLIBRI_LIBRARY=/usr/local/lib/libcolibri.so.0.1 python3 ctypes_host.py MODEL

The structs follow colibri.h, field by field; each begins with its own size.
"""
import ctypes
import os
import sys
from ctypes import POINTER, byref, c_char, c_char_p, c_float, c_int32, c_uint32, c_uint64, c_void_p

ABI_VERSION = 1


class Error(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint64),
        ("code", c_int32),
        ("reserved", c_int32),
        ("offset", c_uint64),
        ("message", c_char * 4096),
        ("stage", c_char * 64),
        ("file", c_char * 1024),
    ]


class Request(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint64),
        ("task", c_int32),
        ("max_tokens", c_uint32),
        ("text", c_char_p),
        ("tokens", POINTER(c_int32)),
        ("num_tokens", c_uint64),
        ("temperature", c_float),
        ("top_p", c_float),
        ("top_k", c_uint32),
        ("logprobs", c_uint32),
        ("seed", c_uint64),
        ("stop", POINTER(c_char_p)),
        ("num_stop", c_uint64),
        ("ignore_eos", c_int32),
        ("pooling", c_int32),
        ("normalize", c_int32),
        ("reserved", c_int32),
    ]


Piece = ctypes.CFUNCTYPE(None, c_void_p, POINTER(c_char), c_uint64)


class Colibri:
    """The library. What fails raises RuntimeError with the library's own words."""

    def __init__(self, path):
        self._library = ctypes.CDLL(path)
        if self._library.colibri_abi_version() != ABI_VERSION:
            raise RuntimeError("the library is of another version than this program")

    def call(self, name, *arguments):
        error = Error()
        self._library.colibri_error_init(byref(error), c_uint64(ctypes.sizeof(error)))
        if getattr(self._library, name)(*arguments, byref(error)) != 0:
            raise RuntimeError(f"{name}: {error.message.decode()}")

    def request(self, text, max_tokens):
        request = Request()
        self._library.colibri_request_init(byref(request), c_uint64(ctypes.sizeof(request)))
        request.text = text.encode()
        request.max_tokens = max_tokens
        return request


def print_piece(_user, text, size):
    # Called on a thread of the pipeline, which waits: print and return.
    sys.stdout.buffer.write(text[:size])
    sys.stdout.buffer.flush()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    colibri = Colibri(os.environ.get("COLIBRI_LIBRARY", "libcolibri.so.0.1"))
    model, session, call = c_void_p(), c_void_p(), c_void_p()
    colibri.call("colibri_model_create", sys.argv[1].encode(), None, byref(model))
    colibri.call("colibri_session_create", model, byref(session))
    request = colibri.request("In the beginning", 16)
    piece = Piece(print_piece)  # must live as long as the call
    colibri.call("colibri_session_submit", session, byref(request), piece, None, None, byref(call))
    colibri.call("colibri_call_wait", call, ctypes.c_int64(-1))
    print()
    colibri.call("colibri_call_release", call)
    colibri.call("colibri_session_destroy", session)
    colibri.call("colibri_model_destroy", model)


if __name__ == "__main__":
    main()
