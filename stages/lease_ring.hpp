// LeaseRing: leases on their way back from one stage to one owner of experts.
//
// A message points at leases that lie side by side here. They are written over only after more new ones than
// can be on their way to that owner, so nothing has to say when they have been read: each of them is of a
// record that came by the owner, which looks at `released` before demands and records. Those of two visits
// ago it has seen when it hands on a record of this one. (An owner whose experts nobody picks sees nothing,
// and is sent nothing. So a ring is never shared between owners.)
#pragma once

#include <cassert>
#include <colibri/messages.hpp>
#include <colibri/registry.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace colibri {

class LeaseRing {
 public:
  explicit LeaseRing(const PlanInputs& plan)
      // Visits two by two, as steps have them: two such pairs hold all that is on its way, a third one covers
      // what stays empty at the end, since a message lies in one piece.
      : leases_(std::size_t{3} * 2 * plan.in_flight * plan.spec->num_experts) {}

  // Begins a message of at most `leases` leases.
  void begin(std::size_t leases) noexcept {
    assert(leases <= leases_.size() && "more leases than visits have experts");
    if (leases > leases_.size() - next_) next_ = 0;
    begin_ = next_;
  }
  void add(Lease lease) noexcept { leases_[next_++] = lease; }
  // The leases added since begin.
  Message message() noexcept {
    return {.type = MessageType::slot,
            .count = static_cast<std::uint32_t>(next_ - begin_),
            .object = leases_.data() + begin_};
  }

 private:
  std::vector<Lease> leases_;
  std::size_t begin_ = 0, next_ = 0;
};

}  // namespace colibri
