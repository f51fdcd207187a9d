# The public headers; which internal ones come with them follows from the include lines.
set(COLIBRI_PUBLIC_HEADERS
  runtime/include/colibri/block_session.hpp
  runtime/include/colibri/colibri.h
  runtime/include/colibri/engine.hpp
  runtime/include/colibri/sanity_check.hpp
  runtime/include/colibri/session.hpp
  runtime/include/colibri/tokenizer.hpp
  stages/include/colibri/messages.hpp
  stages/include/colibri/registry.hpp
  stages/include/colibri/services.hpp
  stages/include/colibri/stage.hpp)
