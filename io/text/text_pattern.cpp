// PCRE2 lives here and nowhere else. Compiled with UTF and Unicode properties, just-in-time
// compiled where the system allows it; '^' and '$' match at lines, as in Oniguruma. Text is
// validated once by the caller, so PCRE2 must not check it again at every match: that alone
// would make tokenising quadratic.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "io/text/text_pattern.hpp"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <utility>

#include "io/text/regex_syntax.hpp"
#include "io/text/utf8.hpp"

namespace colibri {

struct FreeCode {
  void operator()(pcre2_code* code) const noexcept { pcre2_code_free(code); }
};
struct FreeCompileContext {
  void operator()(pcre2_compile_context* context) const noexcept { pcre2_compile_context_free(context); }
};
struct FreeMatchContext {
  void operator()(pcre2_match_context* context) const noexcept { pcre2_match_context_free(context); }
};
struct FreeMatchData {
  void operator()(pcre2_match_data* data) const noexcept { pcre2_match_data_free(data); }
};
struct FreeJitStack {
  void operator()(pcre2_jit_stack* stack) const noexcept { pcre2_jit_stack_free(stack); }
};

namespace {

constexpr std::size_t kMaxPatternBytes = 64 * 1024;
// Bounds what a hostile expression can burn at one place of the text.
constexpr std::uint32_t kMatchLimit = 10'000'000;
constexpr std::size_t kJitStackStartBytes = 32 * 1024;
constexpr std::size_t kJitStackMaxBytes = 8 * 1024 * 1024;

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

Status out_of_memory() { return {ErrorCode::out_of_memory, "no memory for a regular expression; free some"}; }

}  // namespace

struct TextPattern::Code {
  std::unique_ptr<pcre2_code, FreeCode> compiled;
};

struct TextPattern::Search::State {
  // Exactly one of the two is set.
  std::string_view literal;
  std::shared_ptr<const Code> code;
  std::unique_ptr<pcre2_match_data, FreeMatchData> data;
  std::unique_ptr<pcre2_match_context, FreeMatchContext> context;
  std::unique_ptr<pcre2_jit_stack, FreeJitStack> jit_stack;  // null: 32 KiB of the thread's own stack

  int match(std::string_view text, std::size_t from) {
    return pcre2_match(code->compiled.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       PCRE2_NO_UTF_CHECK, data.get(), context.get());
  }

  // The first match at or after `from`; false when there is none.
  Result<bool> next(std::string_view text, std::size_t from, std::size_t& begin, std::size_t& end) {
    if (!code) {
      begin = text.find(literal, from);
      end = begin + literal.size();
      return begin != std::string_view::npos;
    }
    int found = match(text, from);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT && !jit_stack) {
      // Rare, and a stack of its own costs system calls: made only now.
      jit_stack.reset(pcre2_jit_stack_create(kJitStackStartBytes, kJitStackMaxBytes, nullptr));
      if (!jit_stack) return out_of_memory();
      pcre2_jit_stack_assign(context.get(), nullptr, jit_stack.get());
      found = match(text, from);
    }
    if (found == PCRE2_ERROR_NOMATCH) return false;
    if (found < 0) {
      return Status(ErrorCode::capacity, "regular expression gave up at byte " + std::to_string(from) +
                                             " of " + std::to_string(text.size()) + ": " +
                                             pcre2_message(found) +
                                             "; shorten the text or simplify the tokenizer's pattern");
    }
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
    begin = bounds[0];
    end = bounds[1];
    return true;
  }
};

Result<TextPattern> TextPattern::literal(std::string text) {
  if (text.empty()) return Status(ErrorCode::unsupported, "an empty pattern is not supported");
  TextPattern pattern;
  pattern.literal_ = std::move(text);
  return pattern;
}

Result<TextPattern> TextPattern::regex(std::string_view pattern) {
  if (pattern.empty()) return Status(ErrorCode::unsupported, "an empty pattern is not supported");
  if (pattern.size() > kMaxPatternBytes) {
    return Status(ErrorCode::unsupported, "regular expression has " + std::to_string(pattern.size()) +
                                              " bytes; at most " + std::to_string(kMaxPatternBytes) +
                                              " are supported");
  }
  COLIBRI_ASSIGN_OR_RETURN(const std::string translated, to_pcre2_syntax(pattern));
  const std::unique_ptr<pcre2_compile_context, FreeCompileContext> context(
      pcre2_compile_context_create(nullptr));
  if (!context) return out_of_memory();
  // Only a line feed ends a line for Oniguruma, whatever PCRE2 was built with.
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  auto code = std::make_shared<Code>();
  code->compiled.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                     &error, &error_offset, context.get()));
  if (!code->compiled) {
    return Status(ErrorCode::unsupported, "regular expression cannot be compiled: " + pcre2_message(error) +
                                              " in '" + std::string(pattern) + "'");
  }
  // Where executable memory is forbidden this fails and pcre2_match interprets: slower, same.
  static_cast<void>(pcre2_jit_compile(code->compiled.get(), PCRE2_JIT_COMPLETE));
  TextPattern result;
  result.code_ = std::move(code);
  return result;
}

Result<TextPattern> TextPattern::from(const PatternDefinition& definition) {
  return definition.is_regex ? regex(definition.text) : literal(definition.text);
}

TextPattern::Search::Search(const TextPattern& pattern) : state_(std::make_unique<State>()) {
  state_->literal = pattern.literal_;
  state_->code = pattern.code_;
}

TextPattern::Search::~Search() = default;
TextPattern::Search::Search(Search&&) noexcept = default;
TextPattern::Search& TextPattern::Search::operator=(Search&&) noexcept = default;

Status TextPattern::Search::find_spans(std::string_view valid_text, std::vector<TextSpan>& spans) {
  spans.clear();
  if (valid_text.empty()) return Status::ok();
  if (state_->code && !state_->data) {
    state_->data.reset(pcre2_match_data_create_from_pattern(state_->code->compiled.get(), nullptr));
    state_->context.reset(pcre2_match_context_create(nullptr));
    if (!state_->data || !state_->context) return out_of_memory();
    pcre2_set_match_limit(state_->context.get(), kMatchLimit);
  }
  // Mirrors the iterator of the reference, including what it does about empty matches.
  std::size_t covered = 0;
  bool after_match = false;  // whether a match ends at `covered`
  for (std::size_t from = 0; from <= valid_text.size();) {
    std::size_t begin = 0;
    std::size_t end = 0;
    COLIBRI_ASSIGN_OR_RETURN(const bool found, state_->next(valid_text, from, begin, end));
    if (!found) break;
    if (begin == end && after_match && begin == covered) {
      // An empty match right behind a match would repeat for ever: try one character on.
      from += from < valid_text.size() ? code_point_at(valid_text, from).length : 1;
      continue;
    }
    if (covered < begin) spans.push_back({covered, begin, false});
    spans.push_back({begin, end, true});
    covered = from = end;
    after_match = true;
  }
  if (covered < valid_text.size()) spans.push_back({covered, valid_text.size(), false});
  return Status::ok();
}

Result<std::string> TextPattern::replace_all(std::string_view valid_text, std::string_view content) const {
  std::vector<TextSpan> spans;
  COLIBRI_RETURN_IF_ERROR(Search(*this).find_spans(valid_text, spans));
  std::string replaced;
  replaced.reserve(valid_text.size());
  for (const TextSpan& span : spans) {
    replaced += span.is_match ? content : valid_text.substr(span.begin, span.end - span.begin);
  }
  return replaced;
}

}  // namespace colibri
