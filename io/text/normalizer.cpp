// Unicode normal forms use the data of utf8proc but not its reordering, which is quadratic
// in a run of combining marks: each run is stably sorted by combining class instead. The
// reference library has the data of an older Unicode version, so compatibility forms of
// characters added since (U+32FF, say) can differ from it; canonical forms are stable.
#include "io/text/normalizer.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <utility>

#include "io/text/utf8.hpp"

namespace colibri {
namespace {

struct NormalForm {
  bool compatibility;
  bool compose;
};

NormalForm form_of(NormalizerKind kind) {
  return {kind == NormalizerKind::nfkc || kind == NormalizerKind::nfkd,
          kind == NormalizerKind::nfc || kind == NormalizerKind::nfkc};
}

utf8proc_propval_t combining_class(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

// Puts each run of combining marks into canonical order.
void order_marks(std::vector<utf8proc_int32_t>& code_points) {
  const auto is_starter = [](utf8proc_int32_t code_point) { return combining_class(code_point) == 0; };
  for (auto begin = code_points.begin(); begin != code_points.end();) {
    const auto marks = std::find_if_not(begin, code_points.end(), is_starter);
    const auto end = std::find_if(marks, code_points.end(), is_starter);
    std::stable_sort(marks, end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

Status to_normal_form(NormalForm form, std::string& text) {
  // ASCII is in every normal form already.
  if (std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; })) {
    return Status::ok();
  }
  unsigned options = UTF8PROC_STABLE | (form.compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
  if (form.compatibility) options |= UTF8PROC_COMPAT;
  std::vector<utf8proc_int32_t> code_points;
  code_points.reserve(text.size());
  std::array<utf8proc_int32_t, 64> decomposed;  // the longest decomposition has 18
  for (std::size_t offset = 0; offset < text.size();) {
    const CodePoint character = code_point_at(text, offset);
    offset += character.length;
    // One character decomposes alone: marks are put in order over the whole run below.
    int last_boundary_class = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(character.value), decomposed.data(),
                                static_cast<utf8proc_ssize_t>(decomposed.size()),
                                static_cast<utf8proc_option_t>(options), &last_boundary_class);
    if (count < 0 || count > static_cast<utf8proc_ssize_t>(decomposed.size())) {
      return {ErrorCode::internal, "Unicode normalization failed at byte " + std::to_string(offset)};
    }
    code_points.insert(code_points.end(), decomposed.begin(), decomposed.begin() + count);
  }
  order_marks(code_points);
  // Composition is linear and expects canonical order.
  if (form.compose) {
    const utf8proc_ssize_t count =
        utf8proc_normalize_utf32(code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()),
                                 static_cast<utf8proc_option_t>(options));
    if (count < 0) return {ErrorCode::internal, "Unicode composition failed"};
    code_points.resize(static_cast<std::size_t>(count));
  }
  text.clear();
  for (const utf8proc_int32_t code_point : code_points)
    append_code_point(text, static_cast<char32_t>(code_point));
  return Status::ok();
}

void strip(bool left, bool right, std::string& text) {
  std::size_t end = text.size();
  while (right && end > 0) {
    const CodePoint last = code_point_before(text, end);
    if (!is_white_space(last.value)) break;
    end -= last.length;
  }
  std::size_t begin = 0;
  while (left && begin < end) {
    const CodePoint first = code_point_at(text, begin);
    if (!is_white_space(first.value)) break;
    begin += first.length;
  }
  text = text.substr(begin, end - begin);
}

}  // namespace

Result<Normalizer> Normalizer::build(const std::vector<NormalizerStep>& steps) {
  Normalizer normalizer;
  for (const NormalizerStep& definition : steps) {
    Step step{definition, std::nullopt};
    if (definition.kind == NormalizerKind::replace) {
      COLIBRI_ASSIGN_OR_RETURN(step.pattern, TextPattern::from(definition.pattern));
    }
    normalizer.steps_.push_back(std::move(step));
  }
  return normalizer;
}

Status Normalizer::apply(std::string& text) const {
  for (const Step& step : steps_) {
    const NormalizerStep& definition = step.definition;
    switch (definition.kind) {
      case NormalizerKind::prepend:
        if (!text.empty()) text.insert(0, definition.content);
        break;
      case NormalizerKind::replace: {
        COLIBRI_ASSIGN_OR_RETURN(text, step.pattern->replace_all(text, definition.content));
        break;
      }
      case NormalizerKind::strip: strip(definition.strip_left, definition.strip_right, text); break;
      case NormalizerKind::nfc:
      case NormalizerKind::nfd:
      case NormalizerKind::nfkc:
      case NormalizerKind::nfkd:
        COLIBRI_RETURN_IF_ERROR(to_normal_form(form_of(definition.kind), text));
        break;
    }
  }
  return Status::ok();
}

}  // namespace colibri
