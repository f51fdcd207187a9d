#include "stages/record_places.hpp"

namespace colibri {

RecordPlaces::RecordPlaces(const Container& container)
    : container_(&container), experts_(container.spec().num_experts) {
  const ModelSpec& spec = container.spec();
  for (std::uint32_t layer = spec.next_moe_layer(0); layer < spec.num_layers();
       layer = spec.next_moe_layer(layer + 1)) {
    moe_layers_.push_back(layer);
  }
}

std::size_t RecordPlaces::records() const noexcept { return moe_layers_.size() * experts_; }

ExpertRecord RecordPlaces::place(std::uint32_t record) const {
  return container_->record(moe_layers_[record / experts_], record % experts_);
}

ReadRequest RecordPlaces::request(std::uint32_t record, std::byte* destination) const {
  const ExpertRecord lies = place(record);
  ReadRequest request;
  request.file = lies.file;
  request.offset = lies.offset;
  request.destination = destination;
  request.length = lies.length;
  request.chunk_hashes = lies.chunk_hashes;
  request.payload_length = container_->layout().payload_bytes;
  request.chunk_bytes = container_->spec().expert_chunk_size;
  return request;
}

std::string RecordPlaces::name(std::uint32_t record) const {
  return "layer " + std::to_string(moe_layers_[record / experts_]) + ", expert " +
         std::to_string(record % experts_);
}

Status RecordPlaces::overdue(std::uint32_t record, std::chrono::milliseconds limit, bool mirrored) const {
  const ExpertRecord lies = place(record);
  const std::string file = container_->expert_files()[lies.file].string();
  return Status(ErrorCode::timeout, "the drive has not answered a read in " + std::to_string(limit.count()) +
                                        " ms: " + file + (mirrored ? " or its copy in a mirror" : "") +
                                        ", offset " + std::to_string(lies.offset) +
                                        "; check the drive with `dmesg`, or raise deadline_ms")
      .in_file(file, lies.offset)
      .at(name(record));
}

}  // namespace colibri
