// The conversion: check everything, then stream tensor by tensor.
#include "io/checkpoint/convert.hpp"

#include <algorithm>
#include <new>

#include "io/checkpoint/checkpoint_folder.hpp"
#include "io/checkpoint/conversion_plan.hpp"
#include "io/checkpoint/model_config.hpp"
#include "io/checkpoint/weights_option.hpp"
#include "io/container/container_files.hpp"
#include "io/container/container_writer.hpp"

namespace colibri {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxConfigBytes = 16U << 20;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  // A dangling link counts: opening it gives the error that names link and target.
  return fs::exists(path, ignored) || fs::is_symlink(path, ignored);
}

Status check_request(const fs::path& checkpoint, const fs::path& output, const ConvertOptions& options) {
  if (options.weights != kWeightsAsStored && !weights_option_format(options.weights)) {
    return unknown_weights(options.weights, true);
  }
  if (options.chunk_bytes < kPageBytes || options.chunk_bytes % kPageBytes != 0 ||
      options.chunk_bytes > kMaxChunkSize) {
    return {ErrorCode::invalid_input, "wrong chunk size: " + std::to_string(options.chunk_bytes) +
                                          " bytes; it must be a multiple of 4096 from 4096 to " +
                                          std::to_string(kMaxChunkSize)};
  }
  std::error_code ignored;
  if (!fs::exists(checkpoint, ignored)) {
    return {ErrorCode::not_found, "checkpoint folder does not exist: " + checkpoint.string()};
  }
  if (!fs::is_directory(checkpoint, ignored)) {
    return {ErrorCode::invalid_input, "checkpoint is not a folder: " + checkpoint.string() +
                                          "; expected a Hugging Face folder with config.json"};
  }
  if (!is_there(checkpoint / "config.json")) {
    return {ErrorCode::not_found, "not a checkpoint: " + checkpoint.string() + " has no config.json"};
  }
  if (fs::equivalent(checkpoint, output, ignored) ||
      fs::weakly_canonical(checkpoint, ignored) == fs::weakly_canonical(output, ignored)) {
    return {ErrorCode::invalid_input,
            "output folder is the checkpoint itself: " + output.string() + "; choose another one"};
  }
  for (const fs::path& directory : options.stripe) {
    if (!fs::equivalent(checkpoint, directory, ignored)) continue;
    return {ErrorCode::invalid_input,
            "directory for experts is the checkpoint itself: " + directory.string() + "; choose another one"};
  }
  return Status::ok();
}

Result<ParsedConfig> read_config(const fs::path& checkpoint) {
  const fs::path config_path = checkpoint / "config.json";
  const fs::path generation_path = checkpoint / "generation_config.json";
  COLIBRI_ASSIGN_OR_RETURN(const std::string config, read_text_file(config_path, kMaxConfigBytes));
  std::string generation;
  if (is_there(generation_path)) {
    COLIBRI_ASSIGN_OR_RETURN(generation, read_text_file(generation_path, kMaxConfigBytes));
  }
  return parse_model_config(config, config_path.string(), generation, generation_path.string());
}

// The output's files from the plan. Failures that a rerun would meet again leave nothing behind.
class Conversion {
 public:
  Conversion(const ConversionPlan& plan, ContainerWriter& writer, const ConvertOptions& options)
      : plan_(plan), writer_(writer), options_(options) {}

  Status run() {
    if (writer_.complete()) return writer_.finish();
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) {
      const DenseTensor& tensor = plan_.tensors[i];
      const MatrixSource& source = plan_.sources[i];
      COLIBRI_RETURN_IF_ERROR(writer_.write_tensor([&](UnitSink& sink) {
        return tensor.packed ? pack_matrix(source, tensor.format, options_.threads, sink, step_)
                             : copy_vector(source, sink);
      }));
      COLIBRI_RETURN_IF_ERROR(step());
    }
    const ExpertLayout& layout = writer_.layout();
    for (const ExpertSource& expert : plan_.experts) {
      COLIBRI_RETURN_IF_ERROR(writer_.write_record([&](UnitSink& sink) -> Status {
        const auto pack = [&](const MatrixSource& source) {
          return pack_matrix(source, layout.format, options_.threads, sink, step_);
        };
        COLIBRI_RETURN_IF_ERROR(pack(expert.gate));
        COLIBRI_RETURN_IF_ERROR(sink.pad_to(layout.up_offset));
        COLIBRI_RETURN_IF_ERROR(pack(expert.up));
        COLIBRI_RETURN_IF_ERROR(sink.pad_to(layout.down_offset));
        return pack(expert.down);
      }));
      COLIBRI_RETURN_IF_ERROR(step());
    }
    return writer_.finish();
  }

 private:
  // Parts that are kept from a former run pass here too.
  Status step() {
    return step_() ? Status::ok()
                   : Status(ErrorCode::cancelled, "conversion was stopped; run it again to go on");
  }

  const ConversionPlan& plan_;
  ContainerWriter& writer_;
  const ConvertOptions& options_;
  std::function<bool()> step_ = [this] {
    if (options_.progress) options_.progress(writer_.bytes_done(), writer_.total_bytes());
    return !options_.cancelled || !options_.cancelled();
  };
};

Result<ConvertReport> convert(const fs::path& checkpoint, const fs::path& output,
                              const ConvertOptions& options) {
  const auto log = [&options](std::string line) {
    if (options.log) options.log(std::move(line));
  };
  COLIBRI_RETURN_IF_ERROR(check_request(checkpoint, output, options));
  COLIBRI_ASSIGN_OR_RETURN(const ParsedConfig config, read_config(checkpoint));
  for (const std::string& note : config.notes) log(note);
  COLIBRI_ASSIGN_OR_RETURN(const CheckpointFolder folder, CheckpointFolder::open(checkpoint));
  COLIBRI_ASSIGN_OR_RETURN(const ConversionPlan plan,
                           plan_conversion(config, folder, options.weights, options.chunk_bytes));

  ContainerPlan target{plan.spec, plan.tensors, {}, folder.identity(), options.stripe};
  for (const std::string_view name : kCopiedFiles) {
    if (is_there(checkpoint / name)) target.copies.push_back(checkpoint / name);
  }
  COLIBRI_ASSIGN_OR_RETURN(ContainerWriter writer,
                           ContainerWriter::open(output, std::move(target), options.force, log));
  if (plan.spec.ignored_tensors > 0) {
    log("ignored " + std::to_string(plan.spec.ignored_tensors) +
        " tensors that generation does not need (multi-token prediction, stored rope tables, tied head)");
  }
  if (Status status = Conversion(plan, writer, options).run(); !status) {
    if (status.code() == ErrorCode::invalid_input) writer.discard();
    return status;
  }
  return ConvertReport{plan.spec, writer.dense_bytes(), writer.expert_bytes(), plan.spec.ignored_tensors,
                       writer.resumed()};
}

}  // namespace

Result<ConvertReport> convert_checkpoint(const fs::path& checkpoint, const fs::path& output,
                                         const ConvertOptions& options) {
  try {
    return convert(checkpoint, output, options);
  } catch (const std::bad_alloc&) {
    return Status(ErrorCode::out_of_memory, "no memory to convert: " + checkpoint.string());
  } catch (const std::exception& error) {
    return Status(ErrorCode::internal, "cannot convert: " + checkpoint.string() + ": " + error.what());
  }
}

}  // namespace colibri
