// colibri_sanity_check: whether a model computes what a model should.
#include <colibri/sanity_check.hpp>

#include "runtime/c_api/handles.hpp"

using namespace colibri;
using namespace colibri::c_api;

colibri_code colibri_sanity_check(colibri_model* model, colibri_error* error) {
  return guarded(error, [&]() -> Answer {
    COLIBRI_C_RETURN_IF_ERROR(check_handle(model, "model"));
    std::unique_ptr<Alone> alone;
    COLIBRI_C_RETURN_IF_ERROR(Alone::begin(*model, "the sanity check", alone));
    const auto report = check_sanity(*model->engine);
    return report ? report->status : report.status();
  });
}
