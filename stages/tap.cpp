// tap: writes the hidden states or the routes of the waves that pass, one line of JSON a row,
// and hands the waves on as they are.
//
// Where it stands decides what it sees: between attend and route the residual stream after
// attention; behind combine that after the MoE layer; behind route or combine also the picks.
// Rows come in the order of their work, so that a line says whose it is. The file is made
// anew by each job; memory is one wave of lines, however long the job.
#include "stages/tap.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <colibri/services.hpp>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/text/json_output.hpp"
#include "stages/layer_list.hpp"
#include "stages/row_tiles.hpp"

namespace colibri {
namespace {

constexpr PortInfo kInputs[] = {
    {"waves", MessageType::wave, "waves at a MoE layer", true, false, false, kSameState},
};
constexpr PortInfo kOutputs[] = {
    {"waves", MessageType::wave, "the same waves, unchanged", true, false, false, kSameState},
};
constexpr ParamInfo kParams[] = {
    {.name = "file",
     .type = ParamType::text,
     .unit = kOutputFileUnit,
     .required = true,
     .help = "JSONL file, made anew by each job"},
    {.name = "what",
     .type = ParamType::choice,
     .unit = "",
     .default_value = "hidden",
     .choices = "hidden|routes",
     .help = "hidden: the residual stream of each row; routes: its experts, ascending, and their weights"},
    {.name = "layers",
     .type = ParamType::text,
     .unit = kLayerListUnit,
     .default_value = "all",
     .help = "MoE layers whose waves are written"},
};
constexpr MetricInfo kMetrics[] = {
    {"rows_total", "rows written"},
    {"written_bytes_total", "bytes handed to the file"},
};
// Elsewhere a wave is at no MoE layer, or has no picks of its own.
constexpr StateNeed kStateNeeds[] = {
    {"what", "hidden", "attended|routed|combined"},
    {"what", "routes", "routed|combined"},
};

constexpr std::uint64_t kNumberCost = 100;  // a number as text, in multiply-adds

// What a line starts with, and so a file that a tap has written.
constexpr std::string_view kLineBegin = "{\"id\": ";

template <class Values>
void append_list(std::string& line, std::string_view name, const Values& values) {
  line.append(", \"").append(name).append("\": [");
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) line += ", ";
    append_json_number(line, values[i]);
  }
  line += ']';
}

class Tap final : public Stage {
 public:
  Status start(StageContext& context) override {
    context_ = &context;
    services_ = &context.services();
    name_ = context.name();
    path_ = context.text("file");
    routes_ = context.text("what") == "routes";
    const ModelSpec& spec = *services_->plan.spec;
    Result<std::vector<bool>> layers = parse_layer_list(context.text("layers"), spec);
    if (!layers) return std::move(layers).status().at("layers");
    layers_ = std::move(*layers);
    hidden_ = spec.hidden_size;
    picks_ = spec.num_experts_per_token;
    COLIBRI_RETURN_IF_ERROR(open_file());
    lines_.resize(services_->plan.wave_rows);
    rows_ = context.counter("rows_total");
    written_bytes_ = context.counter("written_bytes_total");
    return {};
  }

  Wait on_message(Message& message, Emitter& out) override {
    const Wave& wave = *message.wave();
    if (layers_[wave.layer] && !broken_) write(wave);
    out.emit(0, message);
    return Wait::none;
  }

  void end_of_input(Emitter&) override {
    if (!broken_) empty_once();
    if (!broken_ && std::fflush(file_.get()) != 0) give_up(write_error());
  }

  void stop() noexcept override { file_.reset(); }

 private:
  struct Close {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };

  // Opens the file without touching what is in it: a job that does not start costs nothing.
  Status open_file() {
    // Without O_NONBLOCK a pipe that nobody reads would hold up the start.
    const int descriptor = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (descriptor < 0) {
      return {ErrorCode::io, "cannot create the file of a tap: " + path_ + ": " + std::strerror(errno) +
                                 "; check stages." + name_ + ".file"};
    }
    file_.reset(::fdopen(descriptor, "r+"));
    if (file_ == nullptr) {
      const int reason = errno;
      ::close(descriptor);
      return {ErrorCode::io, "cannot open the file of a tap: " + path_ + ": " + std::strerror(reason)};
    }
    struct stat status {};
    if (::fstat(descriptor, &status) != 0) return write_error();
    if (!S_ISREG(status.st_mode) && !S_ISCHR(status.st_mode)) {
      return {ErrorCode::invalid_input, "the file of a tap is no regular file: " + path_ +
                                            "; name another with stages." + name_ + ".file"};
    }
    regular_ = S_ISREG(status.st_mode);
    char begin[kLineBegin.size()];
    if (regular_ && status.st_size > 0 &&
        (::pread(descriptor, begin, sizeof begin, 0) != static_cast<ssize_t>(sizeof begin) ||
         std::string_view(begin, sizeof begin) != kLineBegin)) {
      return {ErrorCode::invalid_input,
              "the file of a tap exists and was written by something else: " + path_ +
                  "; remove it, or name another with stages." + name_ + ".file"};
    }
    return {};
  }

  // What an earlier tap wrote goes when there is something to write.
  void empty_once() {
    if (std::exchange(emptied_, true) || !regular_) return;
    if (::ftruncate(::fileno(file_.get()), 0) != 0) give_up(write_error());
  }

  void write(const Wave& wave) {
    empty_once();
    if (broken_) return;
    // A visit of another layer is what is left of the last one: this wave was not routed yet. Edges between
    // ports that say their state are checked before; a host's need not.
    if (routes_ && (wave.visit == nullptr || wave.visit->layer != wave.layer)) {
      return give_up(Status(ErrorCode::invalid_input,
                            "waves were not routed where a tap is to write routes, in layer " +
                                std::to_string(wave.layer) + "; put it behind route or combine"));
    }
    const std::uint64_t numbers = routes_ ? 2 * picks_ : hidden_;
    for_ranges(*context_, wave.rows(), kNumberCost * numbers, [&](std::uint32_t begin, std::uint32_t end) {
      for (std::uint32_t i = begin; i < end; ++i) make_line(wave, wave.row_begin + i, lines_[i]);
    });
    for (std::uint32_t i = 0; i < wave.rows(); ++i) {
      if (std::fwrite(lines_[i].data(), 1, lines_[i].size(), file_.get()) != lines_[i].size())
        return give_up(write_error());
      written_bytes_->add(lines_[i].size());
    }
    rows_->add(wave.rows());
  }

  void make_line(const Wave& wave, std::size_t row, std::string& line) const {
    const Step& step = *wave.step;
    const Request& request = step.sequences[row]->request;
    line = kLineBegin;
    append_json_string(line, request.id);
    line += ", \"index\": ";
    append_json_number(line, request.index);
    line += ", \"position\": ";
    append_json_number(line, step.positions[row]);
    line += ", \"layer\": ";
    append_json_number(line, wave.layer);
    if (routes_) {
      append_list(line, "experts", std::span(step.picks + row * picks_, picks_));
      append_list(line, "weights", std::span(step.pick_weights + row * picks_, picks_));
    } else {
      append_list(line, "hidden", std::span(step.residual + row * hidden_, hidden_));
    }
    line += "}\n";
  }

  Status write_error() const {
    return {ErrorCode::io, "cannot write the file of a tap: " + path_ + ": " + std::strerror(errno) +
                               "; make room or name another with stages." + name_ + ".file"};
  }

  // The job has failed; waves go on, so that what is in flight ends.
  void give_up(Status status) {
    broken_ = true;
    services_->fail_job(std::move(status).in_stage(name_));
  }

  StageContext* context_ = nullptr;
  const Services* services_ = nullptr;
  std::string name_, path_;
  bool routes_ = false;
  std::vector<bool> layers_;  // [num_layers] written
  std::size_t hidden_ = 0, picks_ = 0;
  std::unique_ptr<std::FILE, Close> file_;
  bool regular_ = false;  // a file, no device
  bool emptied_ = false;
  std::vector<std::string> lines_;  // [wave_rows] keep their memory
  bool broken_ = false;
  Counter *rows_ = nullptr, *written_bytes_ = nullptr;
};

}  // namespace

const StageInfo kTapInfo = {
    .kind = "tap",
    .help = "writes hidden states or routes of chosen layers to a file; changes nothing",
    .inputs = kInputs,
    .outputs = kOutputs,
    .params = kParams,
    .metrics = kMetrics,
    .max_emits = 1,
    .state_needs = kStateNeeds,
    .memory = {.steps = true},
};

std::unique_ptr<Stage> create_tap() { return std::make_unique<Tap>(); }

}  // namespace colibri
