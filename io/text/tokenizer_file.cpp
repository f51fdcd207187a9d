// Vocabulary and merges are nearly all of the file. They are taken out while it is parsed,
// so that no document tree with several hundred thousand nodes is ever built: that would be
// the highest point of a small job's memory.
#include "io/text/tokenizer_file.hpp"

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "io/json_tree.hpp"
#include "io/text/json_cursor.hpp"
#include "io/text/tokenizer_components.hpp"

namespace colibri {
namespace {

using nlohmann::json;

Status invalid(std::string sentence) { return {ErrorCode::invalid_input, std::move(sentence)}; }

// Listens to the parser and keeps model.vocab and model.merges for itself. Depths are those
// of the parser: 1 for what stands in the document's object, 2 in "model", 3 in its members.
class BulkReader {
 public:
  explicit BulkReader(BpeDefinition& model) : model_(model) {}

  const Status& status() const { return status_; }

  // Whether the parser shall keep the value in the document.
  bool on_event(int depth, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::key) return on_key(depth, value.get_ref<const std::string&>());
    if (!in_model_ || depth < 2 || section_ == Section::other) return true;
    // The vocabulary object or the merge array itself.
    if (depth == 2) {
      const bool right_kind =
          section_ == Section::vocabulary
              ? event == json::parse_event_t::object_start || event == json::parse_event_t::object_end
              : event == json::parse_event_t::array_start || event == json::parse_event_t::array_end;
      if (!right_kind) section_ = Section::other;  // a wrong type, reported from the document
      return true;
    }
    if (section_ == Section::vocabulary) return on_vocabulary(event, value);
    return on_merges(depth, event, value);
  }

 private:
  enum class Section { other, vocabulary, merges };

  // Keys decide what the following values are. A vocabulary key is not kept in the document:
  // the parser would make a node for it.
  bool on_key(int depth, const std::string& key) {
    if (depth == 1) in_model_ = key == "model";
    if (depth == 2) {
      section_ = !in_model_        ? Section::other
                 : key == "vocab"  ? Section::vocabulary
                 : key == "merges" ? Section::merges
                                   : Section::other;
    }
    if (depth == 3 && in_model_ && section_ == Section::vocabulary) {
      token_ = key;
      return false;
    }
    return true;
  }

  bool on_vocabulary(json::parse_event_t event, const json& value) {
    if (event != json::parse_event_t::value || !value.is_number_integer()) {
      fail("field has the wrong type: model.vocab['" + token_ + "']; expected a token id");
      return false;
    }
    const auto id = JsonCursor(&value, "model.vocab['" + token_ + "']").integer(0, kMaxTokenIds - 1);
    if (id) {
      model_.vocabulary.push_back({token_, static_cast<std::int32_t>(*id)});
    } else if (status_) {
      status_ = id.status();
    }
    return false;
  }

  // "left right" at depth 3, or ["left", "right"] with its elements at depth 4.
  bool on_merges(int depth, json::parse_event_t event, json& value) {
    const auto path = [&] { return "model.merges[" + std::to_string(model_.merges.size()) + "]"; };
    if (depth == 3 && event == json::parse_event_t::array_start) {
      pair_.clear();
      return true;
    }
    if (depth == 3 && event == json::parse_event_t::array_end) {
      if (pair_.size() == 2) {
        model_.merges.push_back({std::move(pair_[0]), std::move(pair_[1])});
      } else {
        fail("merge is malformed: " + path() + " has " + std::to_string(pair_.size()) +
             " elements; expected 2");
      }
      return false;
    }
    if (event != json::parse_event_t::value || !value.is_string() || depth > 4) {
      fail("field has the wrong type: " + path() + "; expected \"left right\" or [\"left\", \"right\"]");
      return false;
    }
    auto& text = value.get_ref<std::string&>();
    if (depth == 4) {
      pair_.push_back(std::move(text));
      return false;
    }
    // Tokens of this old form cannot hold a space; that is why the list form came.
    const std::size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      fail("merge is malformed: " + path() + " is '" + text +
           "'; expected two tokens with one space between");
    } else {
      model_.merges.push_back({text.substr(0, space), text.substr(space + 1)});
    }
    return false;
  }

  void fail(std::string sentence) {
    if (status_) status_ = invalid(std::move(sentence));
  }

  BpeDefinition& model_;
  Status status_;  // the first failure
  bool in_model_ = false;
  Section section_ = Section::other;
  std::string token_;              // the vocabulary key whose value comes next
  std::vector<std::string> pair_;  // of the merge being read
};

Result<AddedTokenDefinition> read_added_token(const JsonCursor& object) {
  COLIBRI_RETURN_IF_ERROR(object.expect_object());
  AddedTokenDefinition token;
  COLIBRI_ASSIGN_OR_RETURN(const std::int64_t id, object["id"].integer(0, kMaxTokenIds - 1));
  token.id = static_cast<std::int32_t>(id);
  COLIBRI_ASSIGN_OR_RETURN(token.content, object["content"].string());
  COLIBRI_ASSIGN_OR_RETURN(token.special, object["special"].boolean());
  COLIBRI_ASSIGN_OR_RETURN(token.single_word, object["single_word"].boolean());
  COLIBRI_ASSIGN_OR_RETURN(token.lstrip, object["lstrip"].boolean());
  COLIBRI_ASSIGN_OR_RETURN(token.rstrip, object["rstrip"].boolean());
  COLIBRI_ASSIGN_OR_RETURN(token.normalized, object["normalized"].boolean());
  return token;
}

// The settings of the model; vocabulary and merges are already in `model`.
Status read_model(const JsonCursor& object, BpeDefinition& model) {
  COLIBRI_RETURN_IF_ERROR(object.expect_object());
  // Files of the first years have no type; what they hold is told by its fields.
  if (object["type"].exists() || !object["merges"].exists()) {
    COLIBRI_ASSIGN_OR_RETURN(const std::string type, object["type"].string());
    if (type != "BPE") {
      return {ErrorCode::unsupported, "model.type '" + type + "' is not supported; supported: BPE"};
    }
  }
  COLIBRI_RETURN_IF_ERROR(object["vocab"].expect_object());
  if (const auto elements = object["merges"].elements(); !elements) return elements.status();
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!object[affix].exists()) continue;
    COLIBRI_ASSIGN_OR_RETURN(const std::string text, object[affix].string());
    if (!text.empty()) {
      return {ErrorCode::unsupported,
              object[affix].path() + " '" + text + "' is not supported; supported: none"};
    }
  }
  if (object["dropout"].exists() && !object["dropout"].is_zero()) {
    return {ErrorCode::unsupported, "model.dropout is not supported; supported: none"};
  }
  if (object["unk_token"].exists()) {
    COLIBRI_ASSIGN_OR_RETURN(model.unk_token, object["unk_token"].string());
  }
  COLIBRI_ASSIGN_OR_RETURN(model.fuse_unk, object["fuse_unk"].boolean_or(false));
  COLIBRI_ASSIGN_OR_RETURN(model.byte_fallback, object["byte_fallback"].boolean_or(false));
  COLIBRI_ASSIGN_OR_RETURN(model.ignore_merges, object["ignore_merges"].boolean_or(false));
  return Status::ok();
}

// Padding and truncation settings are left alone on purpose: they are habits of one caller
// of the file, and whoever runs a model passes the length that it wants.
Result<TokenizerDefinition> read_document(const JsonCursor& document, BpeDefinition model) {
  COLIBRI_RETURN_IF_ERROR(document.expect_object());
  TokenizerDefinition definition;
  definition.model = std::move(model);
  COLIBRI_RETURN_IF_ERROR(read_model(document["model"], definition.model));
  if (document["added_tokens"].exists()) {
    COLIBRI_ASSIGN_OR_RETURN(const std::vector<JsonCursor> tokens, document["added_tokens"].elements());
    for (const JsonCursor& token : tokens) {
      COLIBRI_ASSIGN_OR_RETURN(AddedTokenDefinition added, read_added_token(token));
      definition.added_tokens.push_back(std::move(added));
    }
  }
  COLIBRI_ASSIGN_OR_RETURN(definition.normalizer, read_normalizer(document["normalizer"]));
  COLIBRI_ASSIGN_OR_RETURN(definition.pre_tokenizer, read_pre_tokenizer(document["pre_tokenizer"]));
  COLIBRI_ASSIGN_OR_RETURN(definition.decoder, read_decoder(document["decoder"]));
  COLIBRI_RETURN_IF_ERROR(read_post_processor(document["post_processor"], definition.template_prefix,
                                              definition.template_suffix));
  return definition;
}

}  // namespace

Result<TokenizerDefinition> parse_tokenizer_json(std::string_view json_text) {
  try {
    BpeDefinition model;
    BulkReader bulk(model);
    // The parser does not recurse, so deep nesting costs memory but no stack.
    json document = json::parse(json_text.begin(), json_text.end(),
                                      [&](int depth, json::parse_event_t event, json& value) {
                                        return bulk.on_event(depth, event, value);
                                      });
    const TakenApart at_the_end(document);
    COLIBRI_RETURN_IF_ERROR(bulk.status());
    return read_document(JsonCursor(&document, {}), std::move(model));
  } catch (const json::parse_error& error) {
    return invalid("text is not valid JSON at byte " + std::to_string(error.byte) + " of " +
                   std::to_string(json_text.size()) + "; expected a complete tokenizer.json");
  } catch (const json::exception& error) {
    return invalid("JSON cannot be read: " + std::string(error.what()) + "; expected a tokenizer.json");
  } catch (const std::bad_alloc&) {
    return Status(ErrorCode::out_of_memory, "no memory to read the tokenizer; free some");
  }
}

}  // namespace colibri
