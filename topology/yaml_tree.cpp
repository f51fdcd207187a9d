// Events of yaml-cpp to a tree with positions.
//
// The only file that knows yaml-cpp. Its exceptions end here; limits are checked while the
// events come, before a hostile file can cost more than its own size.
#include "topology/yaml_tree.hpp"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <exception>
#include <map>
#include <sstream>

#include "io/text/utf8.hpp"
#include "topology/problem_text.hpp"

namespace colibri {
namespace {

// Thrown out of the parser, and caught in this file, when going on makes no sense.
struct StopParsing {};

// Called by the parser in document order; keeps the collections that are open on a stack of its own.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(std::string_view file_name, PipelineProblems& problems)
      : file_name_(file_name), problems_(problems) {}

  YamlNode take_root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    place(node_at(mark, YamlNode::Kind::empty, "?", anchor));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const Origin origin = origin_of(mark);
    problems_.add(origin, path(),
                  "alias " + quote_value("*" + anchor_names_[anchor]) +
                      " is not supported; expected the value itself, written out");
    place(refused(origin));
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    YamlNode node = node_at(mark, YamlNode::Kind::scalar, tag, anchor);
    node.text = value;
    node.quoted = tag == "!";
    place(std::move(node));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(node_at(mark, YamlNode::Kind::sequence, tag, anchor));
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(node_at(mark, YamlNode::Kind::map, tag, anchor));
  }
  void OnMapEnd() override { close(); }

  void OnAnchor(const YAML::Mark&, const std::string& name) override { pending_anchor_ = name; }

  Origin origin_of(const YAML::Mark& mark) const {
    Origin origin{Origin::Kind::file, file_name_};
    if (!mark.is_null()) {
      origin.line = mark.line + 1;
      origin.column = mark.column + 1;
    }
    return origin;
  }

 private:
  // A collection that is still open. A map expects a key whenever `has_key` is false.
  struct Frame {
    YamlNode node;
    std::string key;
    Origin key_origin;
    bool has_key = false;
    bool drop_value = false;  // the key was refused: its value is read and forgotten
  };

  static YamlNode refused(const Origin& origin) {
    YamlNode node;
    node.kind = YamlNode::Kind::refused;
    node.origin = origin;
    return node;
  }

  YamlNode node_at(const YAML::Mark& mark, YamlNode::Kind kind, const std::string& tag,
                   YAML::anchor_t anchor) {
    YamlNode node;
    node.kind = kind;
    node.origin = origin_of(mark);
    if (anchor != 0) {
      anchor_names_[anchor] = pending_anchor_;
      problems_.add(node.origin, path(),
                    "anchor " + quote_value("&" + pending_anchor_) +
                        " is not supported; expected the value alone, written out wherever it is needed");
    }
    if (!tag.empty() && tag != "?" && tag != "!") {
      problems_.add(node.origin, path(),
                    "tag " + quote_value(tag) + " is not supported; expected the value alone");
    }
    return node;
  }

  // The path of what comes next, for problems found while parsing.
  std::string path() const {
    std::string out;
    for (const Frame& frame : frames_) {
      if (frame.node.kind == YamlNode::Kind::sequence) {
        out.append("[").append(std::to_string(frame.node.items.size())).append("]");
      } else if (frame.has_key) {
        if (!out.empty()) out += ".";
        out += frame.key;
      }
    }
    return out;
  }

  void open(YamlNode node) {
    if (frames_.size() >= kMaximumYamlDepth) {
      problems_.add(node.origin, "",
                    "nesting is too deep; expected at most " + std::to_string(kMaximumYamlDepth) + " levels");
      throw StopParsing();
    }
    frames_.push_back(Frame{std::move(node)});
  }

  // A finished collection is a value, or an item, of the one around it.
  void close() {
    YamlNode node = std::move(frames_.back().node);
    frames_.pop_back();
    place(std::move(node));
  }

  void place(YamlNode node) {
    if (frames_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& frame = frames_.back();
    if (frame.node.items.size() + frame.node.entries.size() >= kMaximumYamlEntries) {
      problems_.add(node.origin, "",
                    "too many entries in one place; expected at most " + std::to_string(kMaximumYamlEntries));
      throw StopParsing();
    }
    if (frame.node.kind == YamlNode::Kind::sequence) {
      frame.node.items.push_back(std::move(node));
    } else if (!frame.has_key) {
      take_key(frame, std::move(node));
    } else {
      if (!frame.drop_value) {
        frame.node.entries.push_back({std::move(frame.key), frame.key_origin, std::move(node)});
      }
      frame.has_key = frame.drop_value = false;
      frame.key.clear();
    }
  }

  void take_key(Frame& frame, YamlNode key) {
    const std::string parent = path();  // before has_key is set: the map's own path
    frame.has_key = true;
    frame.drop_value = true;
    frame.key_origin = key.origin;
    if (key.kind == YamlNode::Kind::refused) return;
    if (key.kind != YamlNode::Kind::scalar) {
      problems_.add(key.origin, parent, "a key is not plain text; expected a name");
      return;
    }
    frame.key = std::move(key.text);
    if (frame.key == "<<" && !key.quoted) {
      problems_.add(key.origin, parent, "merge key '<<' is not supported; expected the keys written out");
      return;
    }
    if (const YamlEntry* first = frame.node.find(frame.key)) {
      problems_.add(
          key.origin, parent.empty() ? frame.key : parent + "." + frame.key,
          "duplicate key; expected once, and it is given in line " + std::to_string(first->key_origin.line));
      return;
    }
    frame.drop_value = false;
  }

  std::string file_name_;
  PipelineProblems& problems_;
  YamlNode root_;
  std::vector<Frame> frames_;
  std::string pending_anchor_;  // named by OnAnchor just before the event of its node
  std::map<YAML::anchor_t, std::string> anchor_names_;
};

// yaml-cpp takes some control characters for the end of the input, and puts a sign of its own in place of
// what is not UTF-8; neither belongs in a config.
bool has_strange_bytes(std::string_view yaml, std::string_view file_name, PipelineProblems& problems) {
  const std::size_t invalid = first_invalid_utf8(yaml).value_or(yaml.size());
  Origin origin{Origin::Kind::file, std::string(file_name), 1, 1};
  for (std::size_t at = 0; at < yaml.size(); ++at) {
    const char c = yaml[at];
    const auto byte = static_cast<unsigned char>(c);
    const bool control = (byte < 0x20 && c != '\t' && c != '\n' && c != '\r') || byte == 0x7F;
    if (control || at == invalid) {
      problems.add(origin, "",
                   (control ? "control character " : "not UTF-8, byte ") + quote_value({&c, 1}) +
                       "; expected a text file in UTF-8");
      return true;
    }
    ++origin.column;
    if (c == '\n') {
      ++origin.line;
      origin.column = 1;
    }
  }
  return false;
}

}  // namespace

YamlEntry* YamlNode::find(std::string_view key) noexcept {
  for (YamlEntry& entry : entries) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

const YamlEntry* YamlNode::find(std::string_view key) const noexcept {
  return const_cast<YamlNode*>(this)->find(key);
}

bool parse_yaml_tree(std::string_view yaml, std::string_view file_name, YamlNode& root,
                     PipelineProblems& problems) {
  if (yaml.size() > kMaximumPipelineBytes) {
    problems.add(
        Origin{Origin::Kind::file, std::string(file_name)}, "",
        "file is too large; expected at most 1 MiB, found " + std::to_string(yaml.size()) + " bytes");
    return false;
  }
  if (has_strange_bytes(yaml, file_name, problems)) return false;
  TreeBuilder builder(file_name, problems);
  try {
    std::istringstream stream{std::string(yaml)};
    YAML::Parser parser(stream);
    parser.HandleNextDocument(builder);
    root = builder.take_root();
    // Only looked at to refuse it: a second document would otherwise be dropped in silence.
    PipelineProblems ignored;
    TreeBuilder second(file_name, ignored);
    if (parser.HandleNextDocument(second)) {
      problems.add(second.take_root().origin, "", "a second document starts; expected one document a file");
    }
    return true;
  } catch (const StopParsing&) {
    return false;
  } catch (const YAML::Exception& error) {
    problems.add(builder.origin_of(error.mark), "",
                 "not valid YAML: " + error.msg + "; expected well-formed YAML");
    return false;
  } catch (const std::bad_alloc&) {
    throw;  // no fault of the file
  } catch (const std::exception& error) {
    problems.add(Origin{Origin::Kind::file, std::string(file_name)}, "",
                 "not readable as YAML: " + std::string(error.what()) + "; expected well-formed YAML");
    return false;
  }
}

}  // namespace colibri
