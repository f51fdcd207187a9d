/* A host in C: two prompts at once, which share the reads of experts.
 *
 *   cc -std=c99 c_host.c $(pkg-config --cflags --libs colibri) -o c_host
 *   c_host MODEL
 */
#include <colibri/colibri.h>
#include <stdio.h>

#define PROMPTS 2

static int fail(const colibri_error *error) {
  fprintf(stderr, "%s: %s\n", colibri_error_string(error->code), error->message);
  return 1;
}

/* Prints the answers in the order of the prompts; the first error ends it. */
static int print_answers(colibri_call *const calls[PROMPTS], colibri_error *error) {
  for (int i = 0; i < PROMPTS; ++i) {
    char text[4096];
    colibri_result result;
    colibri_result_init(&result, sizeof result);
    result.text = text;
    result.text_capacity = sizeof text;
    if (colibri_call_wait(calls[i], -1, error) != COLIBRI_OK ||
        colibri_call_result(calls[i], &result, error) != COLIBRI_OK) {
      return fail(error);
    }
    printf("%d: %s\n", i, text);
  }
  return 0;
}

static int ask(colibri_model *model, colibri_error *error) {
  static const char *const prompts[PROMPTS] = {"In the beginning", "LEAR. "};
  colibri_session *session = NULL;
  colibri_call *calls[PROMPTS] = {NULL};
  int status = 0;
  if (colibri_session_create(model, &session, error) != COLIBRI_OK) return fail(error);
  for (int i = 0; i < PROMPTS && status == 0; ++i) {
    colibri_request request;
    colibri_request_init(&request, sizeof request);
    request.text = prompts[i];
    request.max_tokens = 16;
    if (colibri_session_submit(session, &request, NULL, NULL, NULL, &calls[i], error) != COLIBRI_OK) {
      status = fail(error);
    }
  }
  if (status == 0) status = print_answers(calls, error);
  for (int i = 0; i < PROMPTS; ++i) colibri_call_release(calls[i], NULL);
  colibri_session_destroy(session, NULL);
  return status;
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  if (colibri_abi_version() != COLIBRI_ABI_VERSION) {
    fprintf(stderr, "the library is of another version: %s\n", colibri_version());
    return 1;
  }
  colibri_error error;
  colibri_error_init(&error, sizeof error);
  colibri_config config;
  colibri_config_init(&config, sizeof config);
  static const char *const settings[] = {"memory.experts=25%", "memory.dynamic=64MiB"};
  config.settings = settings;
  config.num_settings = sizeof settings / sizeof settings[0];
  colibri_model *model = NULL;
  if (colibri_model_create(argv[1], &config, &model, &error) != COLIBRI_OK) return fail(&error);
  const int status = ask(model, &error);
  colibri_model_destroy(model, NULL);
  return status;
}
