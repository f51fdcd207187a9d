// A report in the text format of Prometheus (exposition format 0.0.4).
#pragma once

#include <span>
#include <string>

#include "runtime/metrics/run_report.hpp"
#include "topology/stage_info.hpp"

namespace colibri {

// Metrics of the run are colibri_NAME, those that every stage has colibri_stage_NAME, those that a kind
// declares colibri_KIND_NAME with the help text of its StageInfo; the latter two are labelled with the stage.
// Names that end in _total are counters, the others gauges. Kinds that are not among `kinds` have no help.
std::string prometheus_text(const RunReport& report, std::span<const StageInfo* const> kinds);

}  // namespace colibri
