#include "tests/support/hooked_stages.hpp"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <utility>

namespace colibri::testing {
namespace {

// More than there are kinds: each needs a function of its own, since a kind creates stages without arguments.
constexpr std::size_t kKindLimit = 32;

const std::vector<StageKind>& builtin_kinds() {
  static const Registry registry = builtin_registry();
  return registry.kinds();
}

void before(const std::string& stage, Call call) {
  if (stage_hooks().before) stage_hooks().before(stage, call);
}

// The stage's own context, with hooks around tiles.
class HookedContext final : public StageContext {
 public:
  explicit HookedContext(StageContext& inner) : inner_(inner), name_(inner.name()) {}
  std::string_view name() const override { return inner_.name(); }
  const Services& services() const override { return inner_.services(); }
  std::uint32_t instance() const override { return inner_.instance(); }
  bool owns(std::uint32_t expert) const override { return inner_.owns(expert); }
  std::uint64_t integer(std::string_view param) const override { return inner_.integer(param); }
  double number(std::string_view param) const override { return inner_.number(param); }
  bool boolean(std::string_view param) const override { return inner_.boolean(param); }
  std::string_view text(std::string_view param) const override { return inner_.text(param); }
  bool is_auto(std::string_view param) const override { return inner_.is_auto(param); }
  std::span<std::byte> memory() override { return inner_.memory(); }
  Counter* counter(std::string_view metric) override { return inner_.counter(metric); }
  CompletionPort& completion_port() override { return inner_.completion_port(); }
  std::uint32_t workers() const override { return inner_.workers(); }

 private:
  void run_parallel(std::size_t tiles, void (*body)(void*, std::size_t), void* object) override {
    inner_.parallel(tiles, [&](std::size_t tile) {
      before(name_, Call::tile);
      body(object, tile);
    });
  }
  StageContext& inner_;
  const std::string name_;
};

class HookedStage final : public Stage {
 public:
  explicit HookedStage(std::unique_ptr<Stage> stage) : stage_(std::move(stage)) {}
  Status start(StageContext& context) override {
    name_ = context.name();
    COLIBRI_RETURN_IF_ERROR(stage_->start(context_.emplace(context)));
    return stage_hooks().after_start ? stage_hooks().after_start(name_) : Status();
  }
  Wait on_message(Message& message, Emitter& out) override {
    before(name_, Call::on_message);
    return stage_->on_message(message, out);
  }
  Wait resume(Emitter& out) override {
    before(name_, Call::resume);
    return stage_->resume(out);
  }
  void end_of_input(Emitter& out) override {
    before(name_, Call::end_of_input);
    stage_->end_of_input(out);
  }
  void stop() noexcept override {
    stage_->stop();
    if (stage_hooks().after_stop) stage_hooks().after_stop(name_);
  }

 private:
  const std::unique_ptr<Stage> stage_;
  std::optional<HookedContext> context_;
  std::string name_;
};

template <std::size_t Index>
std::unique_ptr<Stage> create_hooked() {
  const StageKind& kind = builtin_kinds()[Index];
  if (stage_hooks().created) stage_hooks().created(std::string(kind.info->kind));
  return std::make_unique<HookedStage>(kind.create());
}

template <std::size_t... Indices>
constexpr auto creators(std::index_sequence<Indices...>) {
  return std::array{&create_hooked<Indices>...};
}

}  // namespace

StageHooks& stage_hooks() {
  static StageHooks hooks;
  return hooks;
}

Registry hooked_registry() {
  static constexpr auto kCreators = creators(std::make_index_sequence<kKindLimit>());
  Registry registry;
  EXPECT_LE(builtin_kinds().size(), kKindLimit);
  for (std::size_t i = 0; i < builtin_kinds().size(); ++i) {
    StageKind kind = builtin_kinds()[i];
    kind.create = kCreators[i];
    EXPECT_TRUE(registry.add(kind).is_ok());
  }
  return registry;
}

}  // namespace colibri::testing
