// RecordChains: messages about records, one for all that go to the same owner in one go.
//
// A hop costs as much for ten records as for one. Where the records lie is in the visit, which lasts until
// the last of them is computed; a record must have been written there before it is added here, and neither is
// looked at again after the chain was sent.
#pragma once

#include <colibri/messages.hpp>
#include <colibri/stage.hpp>
#include <cstdint>
#include <utility>
#include <vector>

namespace colibri {

class RecordChains {
 public:
  // Of messages on `port`, which is marked by_expert.
  explicit RecordChains(std::uint32_t port) : port_(port) {}

  // Sends what was added of another visit for the same owner.
  void add(Visit& visit, std::uint32_t expert, Emitter& out) {
    const std::uint32_t owner = out.owner(port_, expert);
    while (chains_.size() <= owner) chains_.emplace_back();
    Chain& chain = chains_[owner];
    if (chain.visit != &visit) send(owner, out);
    if (chain.count == 0) {
      chain.visit = &visit;
      chain.first = expert;
    } else {
      visit.records[chain.last].next = expert;
    }
    chain.last = expert;
    ++chain.count;
  }

  void send_all(Emitter& out) {
    for (std::uint32_t owner = 0; owner < chains_.size(); ++owner) send(owner, out);
  }

 private:
  struct Chain {
    Visit* visit = nullptr;
    std::uint32_t first = 0, last = 0;  // experts
    std::uint32_t count = 0;
  };

  void send(std::uint32_t owner, Emitter& out) {
    const Chain chain = std::exchange(chains_[owner], {});
    if (chain.count == 0) return;
    out.emit_to(
        port_, owner,
        {.type = MessageType::expert, .first = chain.first, .count = chain.count, .object = chain.visit});
  }

  std::uint32_t port_;
  std::vector<Chain> chains_;  // by owner
};

}  // namespace colibri
