// check_sanity: does an opened model compute what a model computes, and not only open?
//
//   auto report = check_sanity(*engine);
//   if (report && !report->status) ... report->status.to_string() ...
//
// Checksums say that files are as convert left them; this finds what was wrong before: weights
// that hold no numbers, a router that was lost and picks the same experts for every token.
#pragma once

#include <colibri/engine.hpp>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/export.hpp"

namespace colibri {

// Tokens that are looked at, the same for every vocabulary of a size: token i is floor((2 p + 1) * vocab_size
// / 128) with p = 5 i mod 64, so the middles of 64 equal parts of the vocabulary, neighbours far from each
// other.
inline constexpr std::uint32_t kSanityTokens = 64;

// What the tokens picked in a MoE layer.
struct LayerSanity {
  std::uint32_t layer = 0;
  std::uint32_t distinct_experts = 0;
  std::uint32_t busiest_expert = 0;  // of several the first
  double largest_share = 0;          // of the tokens, that picked it
};

struct SanityReport {
  // Not ok: what is wrong (a value that is not finite: the layer and token where it was seen first; a token
  // that failed; the layer, expert and share of picks that no trained router makes), and what to do.
  Status status;
  std::vector<LayerSanity> layers;  // ascending; those that were reached
};

// Runs a job of its own on the engine. All hidden states, outputs of MoE blocks and logits must be finite. In
// each MoE layer more than num_experts_per_token distinct experts must be picked, and none by more than 90 %
// of the tokens, unless more than half of the experts are picked for each token anyway. A whole pipeline
// scores the tokens; where hidden states are taken (block_in) their embeddings go through the MoE block of
// each layer in turn, and what it adds is added. Errors: those of Engine::run.
COLIBRI_API Result<SanityReport> check_sanity(Engine& engine);

}  // namespace colibri
