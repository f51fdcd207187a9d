#include "runtime/cli/routing_trace.hpp"

#include <cerrno>
#include <cstring>

#include "io/text/json_output.hpp"

namespace colibri::cli {
namespace {

void append_field(std::string& out, std::string_view name, std::uint64_t value) {
  out.append(out.back() == '{' ? "\"" : ", \"").append(name).append("\": ");
  append_json_number(out, value);
}

}  // namespace

Status RoutingTrace::begin(const Engine& engine) {
  file_.reset(std::fopen(path_.c_str(), "w"));
  if (file_ == nullptr) {
    return {ErrorCode::io, "cannot create the routing trace: " + path_ + ": " + std::strerror(errno)};
  }
  const ModelSpec& spec = engine.spec();
  line_ = "{";
  append_field(line_, "colibri_routing_trace", 1);
  append_field(line_, "layers", spec.num_layers());
  append_field(line_, "experts", spec.num_experts);
  append_field(line_, "experts_per_token", spec.num_experts_per_token);
  append_field(line_, "record_bytes", engine.container().layout().record_bytes);
  append_field(line_, "slots", engine.plan().slots);
  append_field(line_, "transit", engine.plan().transit);
  append_field(line_, "transit_limit", engine.plan().slots_in_flight);
  append_field(line_, "between_layers", engine.plan().slots_between_layers);
  write_line();
  return {};
}

void RoutingTrace::routing(std::uint64_t step, std::uint64_t visit, const Sequence& sequence,
                           std::uint32_t position, std::uint32_t layer,
                           std::span<const std::uint32_t> experts, std::span<const float> weights) {
  const std::lock_guard lock(mutex_);
  line_ = "{";
  append_field(line_, "step", step);
  append_field(line_, "visit", visit);
  line_ += ", \"id\": ";
  append_json_string(line_, sequence.request.id);
  append_field(line_, "position", position);
  append_field(line_, "layer", layer);
  line_ += ", \"experts\": ";
  append_json_numbers(line_, experts);
  line_ += ", \"weights\": ";
  append_json_numbers(line_, weights);
  write_line();
}

void RoutingTrace::write_line() {
  line_ += "}\n";
  if (error_ == 0 && std::fwrite(line_.data(), 1, line_.size(), file_.get()) != line_.size()) error_ = errno;
}

Status RoutingTrace::finish() {
  const std::lock_guard lock(mutex_);
  if (std::fflush(file_.get()) != 0 && error_ == 0) error_ = errno;
  if (error_ == 0) return {};
  return {ErrorCode::io, "cannot write the routing trace: " + path_ + ": " + std::strerror(error_)};
}

}  // namespace colibri::cli
