// colibri_batch_run: a file of requests, as `colibri batch` runs it.
#include <atomic>
#include <utility>

#include "runtime/c_api/configuration.hpp"
#include "runtime/c_api/handles.hpp"
#include "runtime/c_api/requests.hpp"
#include "runtime/engine/request_file_job.hpp"

using namespace colibri;
using namespace colibri::c_api;

namespace {

Result<RequestFile> read_options(const colibri_batch_options& options) {
  RequestFile file;
  COLIBRI_ASSIGN_OR_RETURN(file.input, read_path(options.input, "options.input"));
  COLIBRI_ASSIGN_OR_RETURN(file.output, read_path(options.output, "options.output"));
  COLIBRI_ASSIGN_OR_RETURN(file.task, read_task(options.task, "options.task"));
  COLIBRI_RETURN_IF_ERROR(check_flag(options.resume, "options.resume"));
  COLIBRI_RETURN_IF_ERROR(check_flag(options.force, "options.force"));
  COLIBRI_RETURN_IF_ERROR(check_flag(options.in_order, "options.in_order"));
  if (options.resume != 0 && options.force != 0) {
    return Status(ErrorCode::invalid_input,
                  "a job cannot both go on and start over: options.resume and options.force are 1; set one");
  }
  file.seed = options.seed;
  file.mode = options.resume != 0  ? ResultMode::resume
              : options.force != 0 ? ResultMode::force
                                   : ResultMode::fresh;
  file.in_order = options.in_order != 0;
  return file;
}

// Standard streams belong to the host, and what cannot be sorted or gone on with is refused here.
Status check_files(const RequestFileJob& job, const colibri_batch_options& options) {
  if (!job.to_file()) {
    return {ErrorCode::invalid_input, "the results need a file: options.output is " +
                                          std::string(options.output) +
                                          "; name a regular file, or a new one"};
  }
  if (!job.streamed()) return {};
  return {ErrorCode::invalid_input, "the requests need a file that can be read again: options.input is " +
                                        std::string(options.input) + "; save them to one"};
}

void fill_report(const RequestFileJob& file, const RunReport& run, colibri_batch_report& report) {
  report.requests = file.answered();
  report.failed = file.failed();
  report.prompt_tokens = run.prompt_tokens;
  report.generated_tokens = run.generated_tokens;
  report.bytes_read = run.bytes_read;
  report.wall_seconds = run.wall_seconds;
  report.hit_rate = run.hit_rate();
}

Answer run_batch(colibri_model& model, const colibri_batch_options& options, colibri_batch_report* report) {
  auto read = read_options(options);
  if (!read) return std::move(read).status();
  RequestFileJob file(std::move(read).value());
  COLIBRI_C_RETURN_IF_ERROR(check_files(file, options));
  std::unique_ptr<Alone> alone;
  COLIBRI_C_RETURN_IF_ERROR(Alone::begin(model, "a batch file", alone));
  COLIBRI_C_RETURN_IF_ERROR(file.scan({}));
  COLIBRI_C_RETURN_IF_ERROR(file.open_results(model.engine->container()));
  COLIBRI_C_RETURN_IF_ERROR(file.open_source(*model.engine));
  std::atomic<bool> stop = false;
  Job job;
  job.source = &file.source();
  job.sink = &file.sink();
  job.started = [&file] { return file.begin(); };
  job.stopping = [&stop] { return stop.load(std::memory_order_relaxed); };
  if (options.progress != nullptr) {
    job.progress = [&](const RunReport& so_far) {
      colibri_batch_report told{};
      told.struct_size = sizeof told;
      fill_report(file, so_far, told);
      if (options.progress(options.user, &told) != 0) stop.store(true, std::memory_order_relaxed);
    };
  }
  const auto ended = model.engine->run(job);
  if (!ended) return ended.status();
  if (report != nullptr) fill_report(file, *ended, *report);
  const bool stopped = stop.load(std::memory_order_relaxed) && file.answered() < file.requests();
  COLIBRI_C_RETURN_IF_ERROR(file.end(!stopped));
  if (!stopped) return {};
  return Status(ErrorCode::cancelled,
                "options.progress has stopped the job: " + std::to_string(file.answered()) + " of " +
                    std::to_string(file.requests()) + " requests are answered; go on with options.resume");
}

}  // namespace

colibri_code colibri_batch_options_init(colibri_batch_options* options, uint64_t struct_size) {
  return contain(nullptr, [&] { return init_struct(options, struct_size, "options"); });
}

colibri_code colibri_batch_run(colibri_model* model, const colibri_batch_options* options,
                               colibri_batch_report* report, colibri_error* error) {
  return guarded(error, [&]() -> Answer {
    COLIBRI_C_RETURN_IF_ERROR(check_handle(model, "model"));
    COLIBRI_C_RETURN_IF_ERROR(check_purpose(*model, COLIBRI_PURPOSE_TEXT));
    COLIBRI_C_RETURN_IF_ERROR(check_struct(options, "options"));
    if (report != nullptr) COLIBRI_C_RETURN_IF_ERROR(check_struct(report, "report"));
    return run_batch(*model, *options, report);
  });
}
