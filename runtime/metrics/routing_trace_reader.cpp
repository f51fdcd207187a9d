#include "runtime/metrics/routing_trace_reader.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "io/text/json_document.hpp"
#include "io/text/jsonl_reader.hpp"

namespace colibri {
namespace {

constexpr std::uint64_t kTraceVersion = 1;
constexpr std::uint64_t kMaximumExperts = 65'536;
constexpr std::uint64_t kMaximumLayers = 65'536;

class TraceReader {
 public:
  explicit TraceReader(std::string path) : path_(std::move(path)) {}

  Result<RoutingTraceContent> read() {
    COLIBRI_ASSIGN_OR_RETURN(JsonlReader lines, JsonlReader::open(path_));
    JsonlLine line;
    bool header = true;
    for (;;) {
      COLIBRI_ASSIGN_OR_RETURN(const JsonlReader::Event event, lines.next(line));
      if (event == JsonlReader::Event::wait)
        return wrong("is no regular file; save the trace to a file first");
      if (event == JsonlReader::Event::end) break;
      line_ = line.index + 1;
      if (line.too_long) return wrong("is too long for a line of a routing trace");
      COLIBRI_RETURN_IF_ERROR(header ? read_header(line.text) : read_row(line.text));
      header = false;
    }
    if (header)
      return Status(ErrorCode::invalid_input, "the file is empty: " + path_ + "; expected a routing trace");
    return std::move(*this).finish();
  }

 private:
  Status wrong(const std::string& what) const {
    return {ErrorCode::invalid_input, path_ + ":" + std::to_string(line_) + ": " + what};
  }

  // Sets `value` to the member, at most `limit`.
  Status number(const JsonValue& object, std::string_view name, std::uint64_t limit,
                std::uint64_t& value) const {
    const JsonValue* member = object.find(name);
    if (member != nullptr && member->to_unsigned(value) && value <= limit) return {};
    return wrong("'" + std::string(name) + "' is " + (member == nullptr ? "missing" : member->describe()) +
                 "; expected an integer from 0 to " + std::to_string(limit));
  }

  Status read_header(std::string_view text) {
    constexpr std::string_view kKeys[] = {"colibri_routing_trace", "layers",        "experts",
                                          "record_bytes",          "transit_limit", "between_layers"};
    const auto object = parse_json_members(text, kKeys);
    if (!object || object->find("colibri_routing_trace") == nullptr) {
      return wrong("is no header of a routing trace; write one with `colibri batch --trace-routing FILE`");
    }
    std::uint64_t version = 0, layers = 0, experts = 0;
    COLIBRI_RETURN_IF_ERROR(number(*object, "colibri_routing_trace", ~std::uint64_t{0} / 2, version));
    if (version != kTraceVersion) {
      return wrong("is a trace of version " + std::to_string(version) + "; this program reads version 1");
    }
    COLIBRI_RETURN_IF_ERROR(number(*object, "layers", kMaximumLayers, layers));
    COLIBRI_RETURN_IF_ERROR(number(*object, "experts", kMaximumExperts, experts));
    COLIBRI_RETURN_IF_ERROR(number(*object, "record_bytes", std::uint64_t{1} << 40, content_.record_bytes));
    TransitNeed& need = content_.transit_need;
    const std::pair<std::string_view, std::uint64_t*> needs[] = {{"transit_limit", &need.in_flight},
                                                                 {"between_layers", &need.between_layers}};
    for (const auto& [key, value] : needs) {
      if (object->find(key) != nullptr)
        COLIBRI_RETURN_IF_ERROR(number(*object, key, std::uint64_t{1} << 40, *value));
    }
    if (experts == 0) return wrong("'experts' is 0; expected at least 1");
    layers_ = layers;
    content_.experts = static_cast<std::uint32_t>(experts);
    return {};
  }

  Status read_row(std::string_view text) {
    constexpr std::string_view kKeys[] = {"visit", "layer", "experts"};
    const auto object = parse_json_members(text, kKeys);
    if (!object) return wrong(object.status().to_string());
    std::uint64_t visit = 0, layer = 0;
    COLIBRI_RETURN_IF_ERROR(number(*object, "visit", ~std::uint64_t{0} / 2, visit));
    COLIBRI_RETURN_IF_ERROR(number(*object, "layer", layers_ == 0 ? 0 : layers_ - 1, layer));
    const JsonValue* experts = object->find("experts");
    if (experts == nullptr || experts->array() == nullptr) return wrong("'experts' is no list");
    auto [place, added] = visits_.try_emplace(visit);
    if (!added && place->second.layer != layer) {
      return wrong("visit " + std::to_string(visit) + " is in layer " + std::to_string(layer) +
                   ", and was in layer " + std::to_string(place->second.layer));
    }
    place->second.layer = static_cast<std::uint32_t>(layer);
    for (const JsonValue& one : *experts->array()) {
      std::uint64_t expert = 0;
      if (!one.to_unsigned(expert) || expert >= content_.experts) {
        return wrong("an expert is " + one.describe() + "; expected an integer below " +
                     std::to_string(content_.experts));
      }
      add(place->second.experts, static_cast<std::uint32_t>(expert));
    }
    ++content_.rows;
    return {};
  }

  static void add(std::vector<std::uint32_t>& experts, std::uint32_t expert) {
    if (std::find(experts.begin(), experts.end(), expert) == experts.end()) experts.push_back(expert);
  }

  // Layers that occur become ordinals: dense layers have no experts.
  Result<RoutingTraceContent> finish() && {
    std::map<std::uint32_t, std::uint32_t> ordinals;
    for (const auto& [serial, visit] : visits_) ordinals.try_emplace(visit.layer, 0);
    for (auto& [layer, ordinal] : ordinals) ordinal = content_.moe_layers++;
    content_.visits.reserve(visits_.size());
    for (auto& [serial, visit] : visits_) {
      visit.layer = ordinals.at(visit.layer);
      content_.visits.push_back(std::move(visit));
    }
    return std::move(content_);
  }

  std::string path_;
  std::uint64_t line_ = 0;
  std::uint64_t layers_ = 0;
  RoutingTraceContent content_;
  std::map<std::uint64_t, ReplayVisit> visits_;  // by serial, which ascends in time
};

}  // namespace

Result<RoutingTraceContent> read_routing_trace(const std::string& path) { return TraceReader(path).read(); }

}  // namespace colibri
