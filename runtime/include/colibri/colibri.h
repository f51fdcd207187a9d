/* colibri.h: Colibri for programs in C, and for every language that can call C.
 *
 *   colibri_error error;
 *   colibri_error_init(&error, sizeof error);
 *   colibri_config config;
 *   colibri_config_init(&config, sizeof config);
 *   colibri_model *model = NULL;
 *   if (colibri_model_create("model", &config, &model, &error) != COLIBRI_OK) puts(error.message);
 *
 * Conventions, which hold for every function unless it says otherwise:
 *
 * - A function that can fail returns a code (COLIBRI_OK is 0) and takes `error` last, which may be
 *   NULL; otherwise its struct_size must be set, and it is filled when the code is not COLIBRI_OK.
 * - Structs begin with struct_size, set by the caller to sizeof the struct; the ..._init functions do
 *   it. In a struct that is only filled nothing else need be set. A struct larger than the library
 *   knows gives COLIBRI_ERROR_UNSUPPORTED, one smaller than its first version
 *   COLIBRI_ERROR_INVALID_INPUT; so does an error of any other size. Fields called reserved are 0.
 * - Pointers that are NULL, sizes that do not fit, and handles of another type give
 *   COLIBRI_ERROR_INVALID_INPUT. A handle that was destroyed must not be used again.
 * - Strings are UTF-8 and end with 0. What the caller passes is copied before the function
 *   returns, except where a buffer is filled later (colibri_infer_async).
 * - Results go to the caller's buffers. One that is too small gives
 *   COLIBRI_ERROR_BUFFER_TOO_SMALL; the size that is needed is told, and what fits is filled.
 * - Functions may be called from any thread, also at the same time on one handle, except that
 *   a handle is destroyed by one thread while no other uses it.
 * - Callbacks run on threads that the pipeline waits for, so they should be short. What they are
 *   given is valid until they return. They may submit, poll, cancel, ask for results, and release
 *   calls that are answered; functions that would wait give COLIBRI_ERROR_INVALID_INPUT there. The
 *   log function may call nothing. An exception out of a callback ends the job: what is open is
 *   answered with COLIBRI_ERROR_INTERNAL, and the next call starts anew.
 * - Nothing is printed (but oneTBB has a warning of its own for processes with one thread), no signal
 *   handler is set, no exception comes out. Models share nothing; several may be open at a time.
 * - In a child that fork made every call but the ..._init functions and those that give constants
 *   returns COLIBRI_ERROR_FORKED, once the parent has opened a model, which the library remembers:
 *   its threads are not there. Open models after the fork.
 */
#ifndef COLIBRI_H
#define COLIBRI_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define COLIBRI_C_API __attribute__((visibility("default")))
#else
#define COLIBRI_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Grows when a struct or a function changes so that a compiled host would go wrong. */
#define COLIBRI_ABI_VERSION 1u

/* ---- Errors ------------------------------------------------------------------------------ */

typedef int32_t colibri_code;
enum {
  COLIBRI_OK = 0,
  COLIBRI_ERROR_INVALID_INPUT = 1,     /* an argument, a request or a file that breaks its rules */
  COLIBRI_ERROR_NOT_FOUND = 2,         /* a file, tensor, stage or name that does not exist */
  COLIBRI_ERROR_CORRUPT = 3,           /* a checksum, a magic or a size that contradicts another */
  COLIBRI_ERROR_UNSUPPORTED = 4,       /* well-formed, but this version or this model cannot do it */
  COLIBRI_ERROR_IO = 5,                /* the operating system refused or failed a read or write */
  COLIBRI_ERROR_OUT_OF_MEMORY = 6,     /* a pool, a limit, the allocator or the system has no room */
  COLIBRI_ERROR_CAPACITY = 7,          /* it can never fit what was configured */
  COLIBRI_ERROR_CANCELLED = 8,         /* ended on request */
  COLIBRI_ERROR_TIMEOUT = 9,           /* a deadline passed */
  COLIBRI_ERROR_INTERNAL = 10,         /* a bug in Colibri */
  COLIBRI_ERROR_FORKED = 11,           /* see above */
  COLIBRI_ERROR_BUFFER_TOO_SMALL = 12, /* the needed size is told */
  COLIBRI_ERROR_BUSY = 13,             /* something else uses the model; the message says what */
  COLIBRI_PENDING = 14                 /* colibri_call_poll, colibri_call_wait: not answered yet; no error */
};

#define COLIBRI_NO_OFFSET UINT64_MAX

typedef struct colibri_error {
  uint64_t struct_size;
  colibri_code code;
  int32_t reserved;    /* 0 */
  uint64_t offset;     /* in the file, in bytes; COLIBRI_NO_OFFSET: not known */
  char message[4096];  /* what is wrong, what was expected, what to do */
  char stage[64];      /* the stage of the pipeline; "": none */
  char file[1024];     /* "": none */
} colibri_error;

/* A short sentence for a code; never NULL, valid for ever. */
COLIBRI_C_API const char *colibri_error_string(colibri_code code);
/* "0.1.0", valid for ever. */
COLIBRI_C_API const char *colibri_version(void);
/* COLIBRI_ABI_VERSION of the library: a host compares it with the one that it was compiled with. */
COLIBRI_C_API uint32_t colibri_abi_version(void);
/* Sets struct_size, and everything else to 0. */
COLIBRI_C_API colibri_code colibri_error_init(colibri_error *error, uint64_t struct_size);

/* ---- What a model is --------------------------------------------------------------------- */

typedef struct colibri_model_spec {
  uint64_t struct_size;
  uint32_t num_layers;
  uint32_t num_moe_layers; /* layers with experts */
  uint32_t num_experts;    /* of a MoE layer */
  uint32_t num_experts_per_token;
  uint32_t hidden_size;
  uint32_t intermediate_size; /* of an expert */
  uint32_t vocab_size;
  uint32_t max_seq_len;
  uint32_t has_tokenizer; /* 0: takes and gives token ids only */
  uint32_t reserved;      /* 0 */
  uint64_t dense_bytes;   /* everything but the experts; always in memory */
  uint64_t expert_bytes;  /* all experts */
  uint64_t record_bytes;  /* one expert */
  char family[32];        /* "qwen3_moe" */
  char weight_dtype[16];  /* "int8" */
} colibri_model_spec;

/* Reads what a converted model is, without its weights. Errors: not_found, corrupt, unsupported, io. */
COLIBRI_C_API colibri_code colibri_model_spec_load(const char *path, colibri_model_spec *spec,
                                                   colibri_error *error);
/* The numbers of the MoE layers, ascending. `*count`: how many there are; `layers` may be NULL when `capacity`
 * is 0. Errors: also buffer_too_small. */
COLIBRI_C_API colibri_code colibri_model_spec_moe_layers(const char *path, uint32_t *layers, uint64_t capacity,
                                                         uint64_t *count, colibri_error *error);

/* ---- How it is run ----------------------------------------------------------------------- */

/* What a model is opened for: pipelines differ, and so does the memory that they need. */
enum {
  COLIBRI_PURPOSE_TEXT = 0,  /* whole sequences: sessions, generate, score, embed, batch files */
  COLIBRI_PURPOSE_BLOCKS = 1 /* hidden states through the experts of single layers: colibri_infer */
};

/* The host's memory for the pools and slots. Called while a model is created and destroyed, on the thread
 * that does it. */
typedef struct colibri_allocator {
  void *user;
  /* `bytes` at a multiple of `alignment` (a power of two, 2 MiB); NULL: there is none. */
  void *(*allocate)(void *user, uint64_t bytes, uint64_t alignment);
  void (*release)(void *user, void *memory, uint64_t bytes, uint64_t alignment);
} colibri_allocator;

/* One line without its end; may be called from any thread, also from several at a time. It may call nothing of this
 * file. */
typedef void (*colibri_log)(void *user, const char *line);

/* Sizes of 0 are chosen by the library (colibri_model_size_estimate tells them): of the static, dynamic and
 * scratch pools what the model and the steps need; of the slots what the machine has left. A pool that is too
 * small is refused with what it needs; all of them together, when the machine has not so much, with a list of what
 * needs how much. What is given above the need is not taken, but by the dynamic pool. */
typedef struct colibri_config {
  uint64_t struct_size;
  int32_t purpose;         /* COLIBRI_PURPOSE_TEXT */
  uint32_t threads;        /* workers; 0: one for each CPU that the process may use */
  uint64_t static_bytes;   /* dense weights */
  uint64_t dynamic_bytes;  /* keys and values, hidden states of the steps */
  uint64_t scratch_bytes;  /* of the stages */
  uint64_t expert_slots;   /* experts in memory at a time */
  uint32_t max_rows;       /* rows (tokens) of a step; 0: auto */
  uint32_t wave_rows;      /* rows that are attended and routed at a time; 0: auto */
  const char *pipeline;    /* YAML text of a pipeline; NULL: the built-in one of the purpose */
  const char *state_dir;   /* folder for what jobs learn about models; NULL: nothing is written */
  const char *kernels;     /* "avx512", "avx2", "scalar"; NULL: the best that the processor has */
  const char *const *settings; /* [num_settings] "stages.fetch.lanes=16"; they go before the pipeline's text */
  uint64_t num_settings;
  colibri_allocator allocator; /* functions NULL: mappings of the library's own */
  colibri_log log;             /* NULL: nothing is said */
  void *log_user;
} colibri_config;

/* Sets struct_size, and zeros: the defaults. */
COLIBRI_C_API colibri_code colibri_config_init(colibri_config *config, uint64_t struct_size);

typedef struct colibri_size_estimate {
  uint64_t struct_size;
  uint64_t static_bytes;
  uint64_t dynamic_bytes;
  uint64_t scratch_bytes;
  uint64_t expert_slots;
  uint64_t slot_bytes;     /* of one slot */
  uint64_t process_bytes;  /* the library itself: tables, tokenizer, stacks, queues */
  uint64_t total_bytes;    /* all of these together: the peak of a run is at most 10 % and 16 MiB above it */
  uint64_t usable_bytes;   /* what the machine, or the control group, allows */
  uint64_t max_positions;  /* longest sequence that the keys and values have room for; 0: none are kept */
  uint32_t max_rows;
  uint32_t wave_rows;
  uint32_t worker_slots;   /* threads; a host that limits oneTBB should allow one more than these */
  uint32_t reserved;       /* 0 */
} colibri_size_estimate;

/* What colibri_model_create would take; allocates none of it. `config` NULL: the defaults. Errors: those of
 * colibri_model_create but for the reading of weights; the message of a configuration that does not fit lists
 * what needs how much. */
COLIBRI_C_API colibri_code colibri_model_size_estimate(const char *path, const colibri_config *config,
                                                       colibri_size_estimate *estimate, colibri_error *error);

/* ---- Models ------------------------------------------------------------------------------ */

typedef struct colibri_model colibri_model;

/* Opens a converted model: plans and takes the memory, reads the dense weights; experts are read when they
 * are needed. `*model` is NULL on failure, and everything was given back. Errors: not_found, corrupt,
 * unsupported, io, invalid_input (configuration), capacity, out_of_memory. */
COLIBRI_C_API colibri_code colibri_model_create(const char *path, const colibri_config *config,
                                                colibri_model **model, colibri_error *error);
/* Ends what runs and gives everything back. Errors: busy (sessions or calls of it exist: destroy and release
 * them first; the model stays). NULL is fine. In a forked child nothing is freed. */
COLIBRI_C_API colibri_code colibri_model_destroy(colibri_model *model, colibri_error *error);
COLIBRI_C_API colibri_code colibri_model_get_spec(const colibri_model *model, colibri_model_spec *spec,
                                                  colibri_error *error);

/* Starts the pipeline of the model, if it does not run, and waits until it has read into slots what earlier
 * jobs used most (config.state_dir; without it nothing is read). `bytes` (may be NULL): what was read. Errors:
 * those of a job's start. */
COLIBRI_C_API colibri_code colibri_prewarm(colibri_model *model, uint64_t *bytes, colibri_error *error);

/* Runs 64 fixed tokens: outputs must be finite; in every MoE layer more than num_experts_per_token distinct
 * experts must be picked, and none in more than 90 % of the rows, unless a row picks more than half of all.
 * Errors: corrupt, with the layer and what was found; busy while sessions or calls are open. */
COLIBRI_C_API colibri_code colibri_sanity_check(colibri_model *model, colibri_error *error);

/* Counters of the running job, else of the last one, in the text format of Prometheus. `*size`: what is needed,
 * with the 0 at the end. Errors: buffer_too_small. */
COLIBRI_C_API colibri_code colibri_get_metrics(const colibri_model *model, char *buffer, uint64_t capacity,
                                               uint64_t *size, colibri_error *error);

/* ---- Threads -----------------------------------------------------------------------------

 * oneTBB, on which pipelines run, gives a process as many workers as it has CPUs, less the calling thread. A
 * pipeline wants one more than its worker_slots, and says so in the log when it gets fewer. A host that uses
 * oneTBB itself raises the limit by tbb::global_control; for others there is this. */

typedef struct colibri_thread_allowance colibri_thread_allowance;

/* Allows the process `threads` threads of oneTBB, the calling one counted, as long as the handle exists; of
 * several such limits, those of the host included, the lowest holds. Errors: invalid_input (0 threads, or more
 * than 65536). */
COLIBRI_C_API colibri_code colibri_thread_allowance_create(uint32_t threads, colibri_thread_allowance **allowance,
                                                           colibri_error *error);
/* NULL is fine. */
COLIBRI_C_API colibri_code colibri_thread_allowance_destroy(colibri_thread_allowance *allowance,
                                                            colibri_error *error);

/* ---- Calls under way --------------------------------------------------------------------- */

/* What an asynchronous function was asked to do. Released by the host once, after its end or before. */
typedef struct colibri_call colibri_call;

/* COLIBRI_OK: answered, without error. COLIBRI_PENDING: not yet. Else the error of the answer. */
COLIBRI_C_API colibri_code colibri_call_poll(const colibri_call *call, colibri_error *error);
/* Waits for the answer, `timeout_ms` at most; negative: as long as it takes. Then as colibri_call_poll. Not
 * to be called from a callback. */
COLIBRI_C_API colibri_code colibri_call_wait(const colibri_call *call, int64_t timeout_ms, colibri_error *error);
/* Asks for an early end; the answer is then COLIBRI_ERROR_CANCELLED, unless it was there already. */
COLIBRI_C_API colibri_code colibri_call_cancel(colibri_call *call, colibri_error *error);
/* Cancels the call if it is not answered, waits for that (up to a step), and frees the handle. NULL is fine. To end
 * many calls, cancel all of them first. In a callback only for calls that are answered, its own in `done` among them. */
COLIBRI_C_API colibri_code colibri_call_release(colibri_call *call, colibri_error *error);

/* ---- The experts of single layers (COLIBRI_PURPOSE_BLOCKS) ------------------------------- */

typedef struct colibri_infer_input {
  uint64_t struct_size;
  const float *hidden_states; /* [seq_len, hidden_size] the residual stream after attention, before the norm */
  uint32_t layer;             /* a MoE layer */
  uint32_t seq_len;           /* 1 to max_seq_len */
  uint32_t hidden_size;       /* must be the model's */
  uint32_t reserved;          /* 0 */
} colibri_infer_input;

typedef struct colibri_infer_output {
  uint64_t struct_size;
  float *hidden_states;      /* [seq_len, hidden_size] what the block adds; may be the input's memory */
  uint64_t hidden_capacity;  /* in floats */
  uint32_t *expert_ids;      /* [seq_len, num_experts_per_token] ascending in a row; NULL: not wanted */
  float *expert_weights;     /* [seq_len, num_experts_per_token] of these; NULL: not wanted */
  uint64_t expert_capacity;  /* elements of expert_ids, and of expert_weights */
  double latency_ms;         /* out: from the call to the answer */
  colibri_code error_code;   /* out: as it is returned; COLIBRI_PENDING until the answer */
  int32_t reserved;          /* 0 */
} colibri_infer_output;

/* What colibri_infer would refuse, values that are not finite included; computes nothing. */
COLIBRI_C_API colibri_code colibri_infer_check_input(const colibri_model *model, const colibri_infer_input *input,
                                                     colibri_error *error);
/* Hidden states through the MoE block of one layer: norm, router, experts, shared expert. The result does not
 * depend on what else runs. Few rows at a time read more: an expert is read once for all rows of a step. Errors:
 * invalid_input (seq_len over max_seq_len, a layer without experts, pointers that are not aligned to 4 or
 * overlap, values that are not finite, with row and column), buffer_too_small, unsupported (the model was opened
 * for text), io and corrupt (an expert could not be read). */
COLIBRI_C_API colibri_code colibri_infer(colibri_model *model, const colibri_infer_input *input,
                                         colibri_infer_output *output, colibri_error *error);

/* Called once. It may come before the asynchronous function has returned; `*call` is told by then, and may be
 * released. `error` NULL: all is well. */
typedef void (*colibri_infer_done)(void *user, const colibri_infer_output *output, const colibri_error *error);

/* The same without waiting. Input, `output` itself and its buffers are the library's until the call is answered.
 * `done` may be NULL. `*call` is to be released. */
COLIBRI_C_API colibri_code colibri_infer_async(colibri_model *model, const colibri_infer_input *input,
                                               colibri_infer_output *output, colibri_infer_done done, void *user,
                                               colibri_call **call, colibri_error *error);

/* ---- Text and tokens (COLIBRI_PURPOSE_TEXT) ---------------------------------------------- */

/* A user of the model. Requests of all sessions share steps; what they get does not depend on it. */
typedef struct colibri_session colibri_session;

COLIBRI_C_API colibri_code colibri_session_create(colibri_model *model, colibri_session **session,
                                                  colibri_error *error);
/* Errors: busy (calls of it are not released; the session stays). NULL is fine. */
COLIBRI_C_API colibri_code colibri_session_destroy(colibri_session *session, colibri_error *error);

enum { COLIBRI_TASK_GENERATE = 0, COLIBRI_TASK_SCORE = 1, COLIBRI_TASK_EMBED = 2 };
enum { COLIBRI_POOLING_MEAN = 0, COLIBRI_POOLING_LAST = 1 };
enum { COLIBRI_FINISH_STOP = 0, COLIBRI_FINISH_LENGTH = 1, COLIBRI_FINISH_ERROR = 2 };

typedef struct colibri_request {
  uint64_t struct_size;
  int32_t task;            /* of colibri_session_submit; COLIBRI_TASK_GENERATE */
  uint32_t max_tokens;     /* to generate; 0: 128, or what the context leaves */
  const char *text;        /* the prompt: either text (the model has a tokenizer) */
  const int32_t *tokens;   /* [num_tokens] or token ids */
  uint64_t num_tokens;
  float temperature;       /* 0: the likeliest token each time; to 100 */
  float top_p;             /* share of probability to draw from, above 0 to 1; 1 */
  uint32_t top_k;          /* tokens to draw from; 0: all */
  uint32_t logprobs;       /* 1: the log-probability of each generated token is wanted */
  uint64_t seed;           /* of the draws: the same seed, the same tokens */
  const char *const *stop; /* [num_stop] texts that end the answer; not part of it */
  uint64_t num_stop;
  int32_t ignore_eos;      /* 1: goes on after an end token */
  int32_t pooling;         /* of embed; COLIBRI_POOLING_MEAN */
  int32_t normalize;       /* of embed; 1: length 1 */
  int32_t reserved;        /* 0 */
} colibri_request;

/* Sets struct_size, top_p to 1, and zeros. */
COLIBRI_C_API colibri_code colibri_request_init(colibri_request *request, uint64_t struct_size);

/* A capacity of 0: not wanted. The sizes tell how many elements there are, whatever fits or is wanted. */
typedef struct colibri_result {
  uint64_t struct_size;
  char *text;               /* of the generated tokens; "" without a tokenizer */
  uint64_t text_capacity;   /* bytes */
  uint64_t text_size;       /* out: bytes, with the 0 at the end */
  int32_t *tokens;          /* generated token ids */
  uint64_t tokens_capacity;
  uint64_t tokens_size;     /* out */
  float *logprobs;          /* generate: of each token, when asked; score: of each prompt token after the first */
  uint64_t logprobs_capacity;
  uint64_t logprobs_size;   /* out */
  float *embedding;         /* embed: [hidden_size] */
  uint64_t embedding_capacity;
  uint64_t embedding_size;  /* out */
  uint32_t prompt_tokens;   /* out */
  int32_t finish_reason;    /* out */
} colibri_result;

COLIBRI_C_API colibri_code colibri_result_init(colibri_result *result, uint64_t struct_size);

/* Text as it is made, of generate only: `size` bytes without a 0 at the end, whole characters. */
typedef void (*colibri_piece)(void *user, const char *text, uint64_t size);
/* `code` is the code of the answer; colibri_call_result gets it. */
typedef void (*colibri_request_done)(void *user, colibri_code code);

/* Queues a request; up to 65,536 of a model may be open, one more gives COLIBRI_ERROR_BUSY. `piece` and `done` may be
 * NULL. `*call` is to be released. What is wrong with the request
 * shows here (invalid_input, unsupported) or in its answer (capacity: its keys and values can never fit). */
COLIBRI_C_API colibri_code colibri_session_submit(colibri_session *session, const colibri_request *request,
                                                  colibri_piece piece, colibri_request_done done, void *user,
                                                  colibri_call **call, colibri_error *error);
/* The answer of a request; may be asked again, with larger buffers. COLIBRI_PENDING before its end; its error
 * when it has one, with the tokens so far. Errors: buffer_too_small; invalid_input (a call of
 * colibri_infer_async). */
COLIBRI_C_API colibri_code colibri_call_result(const colibri_call *call, colibri_result *result,
                                               colibri_error *error);

/* Submit, wait and result in one, for generate, score and embed; request->task is not looked at. A buffer that
 * is too small costs the answer: ask with submit where sizes are not known. */
COLIBRI_C_API colibri_code colibri_generate(colibri_session *session, const colibri_request *request,
                                            colibri_result *result, colibri_error *error);
COLIBRI_C_API colibri_code colibri_score(colibri_session *session, const colibri_request *request,
                                         colibri_result *result, colibri_error *error);
COLIBRI_C_API colibri_code colibri_embed(colibri_session *session, const colibri_request *request,
                                         colibri_result *result, colibri_error *error);

/* ---- Files of requests (COLIBRI_PURPOSE_TEXT) -------------------------------------------- */

typedef struct colibri_batch_report {
  uint64_t struct_size;
  uint64_t requests;  /* answered, with those of the job that was gone on with */
  uint64_t failed;    /* of these, answered with an error */
  uint64_t prompt_tokens;
  uint64_t generated_tokens;
  uint64_t bytes_read; /* of experts */
  double wall_seconds;
  double hit_rate;    /* of experts in slots */
} colibri_batch_report;

typedef struct colibri_batch_options {
  uint64_t struct_size;
  const char *input;  /* JSONL, a request a line; see the README */
  const char *output; /* JSONL, a result a line, appended as they complete */
  int32_t task;       /* COLIBRI_TASK_GENERATE */
  int32_t resume;     /* 1: goes on with an unfinished job */
  int32_t force;      /* 1: starts over an unfinished job; a finished one is replaced in any case */
  int32_t in_order;   /* 1: sorts the results by line at the end */
  uint64_t seed;      /* of the job: seeds of lines without one are made from it and their id */
  /* About ten times a second; not 0 stops after the step that runs: what is not answered by then can be gone on
   * with. NULL: none. */
  int32_t (*progress)(void *user, const colibri_batch_report *so_far);
  void *user;
} colibri_batch_options;

COLIBRI_C_API colibri_code colibri_batch_options_init(colibri_batch_options *options, uint64_t struct_size);

/* Runs a file of requests, as `colibri batch` does. COLIBRI_OK also when lines failed: `report` (may be NULL)
 * tells how many. Errors: those of the job as a whole; cancelled (progress stopped it); busy while sessions of the
 * model are open. */
COLIBRI_C_API colibri_code colibri_batch_run(colibri_model *model, const colibri_batch_options *options,
                                             colibri_batch_report *report, colibri_error *error);

#ifdef __cplusplus
}
#endif

#endif
