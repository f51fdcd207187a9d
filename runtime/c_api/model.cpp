// colibri_model_*: opening and closing, and what is asked of a model as a whole.
#include <chrono>
#include <thread>
#include <utility>

#include "runtime/c_api/configuration.hpp"
#include "runtime/c_api/handles.hpp"
#include "runtime/c_api/model_facts.hpp"
#include "runtime/metrics/prometheus.hpp"

using namespace colibri;
using namespace colibri::c_api;

namespace {

constexpr std::chrono::milliseconds kLookAgain{1};

Result<std::unique_ptr<colibri_model>> open_model(const char* path, const colibri_config* config) {
  COLIBRI_ASSIGN_OR_RETURN(const std::string folder, read_path(path, "path"));
  COLIBRI_ASSIGN_OR_RETURN(Configuration read, read_configuration(config, folder));
  auto model = std::make_unique<colibri_model>();
  model->purpose = read.purpose;
  COLIBRI_ASSIGN_OR_RETURN(model->engine,
                           Engine::open(folder, std::move(read.pipeline), std::move(read.options)));
  return model;
}

Answer close_model(colibri_model& model) {
  const std::lock_guard lock(model.mutex);
  if (model.alone) return Answer::busy("a batch file or a check runs on the model; wait for its end");
  if (model.sessions == 0 && model.uses == 0) return {};
  return Answer::busy("sessions or calls of the model exist: " + std::to_string(model.sessions) +
                      " sessions, " + std::to_string(model.uses) + " calls; destroy and release them first");
}

// Sum of a metric over the stages of fetch.
std::uint64_t fetch_metric(const RunReport& report, std::string_view metric) {
  std::uint64_t sum = 0;
  for (const StageReport& stage : report.stages) {
    if (stage.kind == "fetch") sum += stage.metric(metric);
  }
  return sum;
}

// Waits until the service has read what earlier jobs used most.
template <class Service>
Answer prewarmed(Service& service, std::uint64_t* bytes) {
  RunReport report = service.stats();
  while (service.running() && fetch_metric(report, "prewarm_under_way") > 0) {
    std::this_thread::sleep_for(kLookAgain);
    report = service.stats();
  }
  if (bytes != nullptr) *bytes = fetch_metric(report, "prewarm_bytes_total");
  if (service.running()) return {};
  const auto ended = service.close();
  return ended ? Answer() : Answer(ended.status());
}

}  // namespace

colibri_code colibri_model_create(const char* path, const colibri_config* config, colibri_model** model,
                                  colibri_error* error) {
  return guarded(error, [&]() -> Answer {
    COLIBRI_C_RETURN_IF_ERROR(check_pointer(model, alignof(colibri_model*), "model"));
    *model = nullptr;
    auto opened = open_model(path, config);
    if (!opened) return std::move(opened).status();
    remember_process();
    *model = opened->release();
    return {};
  });
}

colibri_code colibri_model_destroy(colibri_model* model, colibri_error* error) {
  return guarded(error, [&]() -> Answer {
    if (model == nullptr) return {};
    COLIBRI_C_RETURN_IF_ERROR(check_handle(model, "model"));
    COLIBRI_C_RETURN_IF_ERROR(check_may_wait());
    COLIBRI_C_RETURN_IF_ERROR(close_model(*model));
    delete model;
    return {};
  });
}

colibri_code colibri_model_get_spec(const colibri_model* model, colibri_model_spec* spec,
                                    colibri_error* error) {
  return guarded(error, [&]() -> Answer {
    COLIBRI_C_RETURN_IF_ERROR(check_handle(model, "model"));
    COLIBRI_C_RETURN_IF_ERROR(check_struct(spec, "spec"));
    fill_spec(model->engine->container(), *spec);
    return {};
  });
}

colibri_code colibri_prewarm(colibri_model* model, uint64_t* bytes, colibri_error* error) {
  return guarded(error, [&]() -> Answer {
    COLIBRI_C_RETURN_IF_ERROR(check_handle(model, "model"));
    if (bytes != nullptr) COLIBRI_C_RETURN_IF_ERROR(check_pointer(bytes, alignof(uint64_t), "bytes"));
    COLIBRI_C_RETURN_IF_ERROR(check_may_wait());
    if (model->purpose == COLIBRI_PURPOSE_TEXT) {
      std::optional<Use<Session>> use;
      COLIBRI_C_RETURN_IF_ERROR(text_service(*model, use));
      return prewarmed(**use, bytes);
    }
    std::optional<Use<BlockSession>> use;
    COLIBRI_C_RETURN_IF_ERROR(block_service(*model, use));
    return prewarmed(**use, bytes);
  });
}

colibri_code colibri_get_metrics(const colibri_model* model, char* buffer, uint64_t capacity, uint64_t* size,
                                 colibri_error* error) {
  return guarded(error, [&]() -> Answer {
    COLIBRI_C_RETURN_IF_ERROR(check_handle(model, "model"));
    COLIBRI_C_RETURN_IF_ERROR(check_pointer(size, alignof(uint64_t), "size"));
    if (capacity > 0) COLIBRI_C_RETURN_IF_ERROR(check_pointer(buffer, 1, "buffer"));
    const std::string text = prometheus_text(model->engine->stats(), builtin_registry().infos());
    *size = text.size() + 1;
    copy_text(buffer, capacity, text);
    return *size <= capacity ? Answer() : too_small("buffer", *size, capacity);
  });
}
