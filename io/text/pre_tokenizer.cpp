// Every step is the same two moves with different settings: rewrite the words, then cut
// them. Behaviours follow Hugging Face tokenizers (normalizer.rs, pre_tokenizers/).
#include "io/text/pre_tokenizer.hpp"

#include <utility>

#include "io/text/byte_level.hpp"

namespace colibri {
namespace {

// Of GPT-2; used by ByteLevel with use_regex.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Appends the words that the cover `spans` of one word makes, shifted by `shift`.
void append_split(const std::vector<TextSpan>& spans, SplitBehavior behavior, bool invert, std::size_t shift,
                  std::vector<WordList::Range>& words) {
  const auto add = [&](std::size_t begin, std::size_t end) {
    if (begin < end) words.push_back({shift + begin, shift + end});
  };
  const auto is_match = [&](std::size_t i) { return spans[i].is_match != invert; };
  for (std::size_t i = 0; i < spans.size(); ++i) {
    std::size_t end = spans[i].end;
    const std::size_t begin = spans[i].begin;
    const bool has_next = i + 1 < spans.size();
    switch (behavior) {
      case SplitBehavior::isolated: break;
      case SplitBehavior::removed:
        if (is_match(i)) continue;
        break;
      case SplitBehavior::contiguous:
        while (i + 1 < spans.size() && is_match(i + 1) == is_match(i)) end = spans[++i].end;
        break;
      case SplitBehavior::merged_with_previous:
        // A match joins the gap before it; a match behind a match stands alone.
        if (!is_match(i) && has_next && is_match(i + 1)) end = spans[++i].end;
        break;
      case SplitBehavior::merged_with_next:
        // Only the last of several matches joins the gap behind them.
        if (is_match(i) && has_next && !is_match(i + 1)) end = spans[++i].end;
        break;
    }
    add(begin, end);
  }
}

// Rewrites each word through `rewrite(index, word, text)`, which appends to `text`.
template <class Rewrite>
void rewrite_words(WordList& list, const Rewrite& rewrite) {
  // Words may have been cut out of the text by an earlier step, so it is always rebuilt.
  std::string text;
  text.reserve(list.text.size() + list.text.size() / 4);
  for (std::size_t i = 0; i < list.words.size(); ++i) {
    const std::size_t begin = text.size();
    rewrite(i, list.word(i), text);
    list.words[i] = {begin, text.size()};
  }
  list.text = std::move(text);
}

void add_prefix_spaces(WordList& list) {
  rewrite_words(list, [](std::size_t, std::string_view word, std::string& text) {
    if (!word.starts_with(' ')) text += ' ';
    text += word;
  });
}

void write_bytes_as_characters(WordList& list) {
  rewrite_words(list, [](std::size_t, std::string_view word, std::string& text) {
    kByteLevelAlphabet.append_characters(text, word);
  });
}

void write_spaces_as(const PreTokenizerStep& step, WordList& list) {
  const bool at_input_start = list.at_input_start;
  rewrite_words(list, [&](std::size_t index, std::string_view word, std::string& text) {
    // A word that begins with a space has its prefix already.
    const bool wants_prefix = step.prepend_scheme == PrependScheme::always ||
                              (step.prepend_scheme == PrependScheme::first && index == 0 && at_input_start);
    const bool has_prefix = word.starts_with(' ') || word.starts_with(step.replacement);
    if (wants_prefix && !has_prefix) text += step.replacement;
    for (const char byte : word) {
      if (byte == ' ') {
        text += step.replacement;
      } else {
        text += byte;
      }
    }
  });
}

}  // namespace

Result<PreTokenizer> PreTokenizer::build(const std::vector<PreTokenizerStep>& steps) {
  PreTokenizer pre_tokenizer;
  for (const PreTokenizerStep& definition : steps) {
    Step step{definition, std::nullopt, SplitBehavior::isolated};
    switch (definition.kind) {
      case PreTokenizerKind::split: {
        COLIBRI_ASSIGN_OR_RETURN(step.pattern, TextPattern::from(definition.pattern));
        step.behavior = definition.behavior;
        break;
      }
      case PreTokenizerKind::byte_level:
        if (definition.use_regex) {
          COLIBRI_ASSIGN_OR_RETURN(step.pattern, TextPattern::regex(kGpt2Pattern));
        }
        break;
      case PreTokenizerKind::digits: {
        COLIBRI_ASSIGN_OR_RETURN(step.pattern, TextPattern::regex(R"(\p{N})"));
        step.behavior = definition.individual_digits ? SplitBehavior::isolated : SplitBehavior::contiguous;
        break;
      }
      case PreTokenizerKind::metaspace:
        if (definition.split) {
          COLIBRI_ASSIGN_OR_RETURN(step.pattern, TextPattern::literal(definition.replacement));
        }
        step.behavior = SplitBehavior::merged_with_next;
        break;
    }
    pre_tokenizer.steps_.push_back(std::move(step));
  }
  return pre_tokenizer;
}

Status PreTokenizer::apply(WordList& list) const {
  std::vector<TextSpan> spans;
  for (const Step& step : steps_) {
    const PreTokenizerStep& definition = step.definition;
    // Metaspace and the prefix space come before the cut, since the cut looks for them; bytes
    // become characters after it, since expressions speak about the real text.
    if (definition.kind == PreTokenizerKind::metaspace) write_spaces_as(definition, list);
    if (definition.kind == PreTokenizerKind::byte_level && definition.add_prefix_space)
      add_prefix_spaces(list);
    if (step.pattern) {
      TextPattern::Search search(*step.pattern);
      std::vector<WordList::Range> words;
      words.reserve(list.words.size());
      for (std::size_t i = 0; i < list.words.size(); ++i) {
        COLIBRI_RETURN_IF_ERROR(search.find_spans(list.word(i), spans));
        append_split(spans, step.behavior, definition.invert, list.words[i].begin, words);
      }
      // If the front was cut away, what is first now is not the start of the input.
      if (words.empty() || list.words.empty() || words[0].begin != list.words[0].begin)
        list.at_input_start = false;
      list.words = std::move(words);
    }
    if (definition.kind == PreTokenizerKind::byte_level) write_bytes_as_characters(list);
  }
  return Status::ok();
}

}  // namespace colibri
