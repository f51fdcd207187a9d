// Request lines, good and bad: one table row per case, with the exact error text.
#include "io/text/request_parser.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "io/text/tokenizer.hpp"

namespace colibri {
namespace {

constexpr std::uint32_t kVocab = 1000;

std::shared_ptr<const Tokenizer> test_tokenizer() {
  static const auto tokenizer =
      Tokenizer::load(std::string(COLIBRI_TEST_DATA) + "/golden/tokenizers/llama3_style/tokenizer.json");
  EXPECT_TRUE(tokenizer.is_ok()) << tokenizer.status().to_string();
  return tokenizer.value();
}

RequestDefaults test_defaults() {
  RequestDefaults defaults;
  defaults.vocab_size = static_cast<std::uint32_t>(test_tokenizer()->vocab_size());
  return defaults;
}

Request parse(const std::string& line, Task task = Task::generate, bool with_tokenizer = true) {
  RequestDefaults defaults = test_defaults();
  if (!with_tokenizer) defaults.vocab_size = kVocab;
  return parse_request_line(line, 7, task, defaults, with_tokenizer ? test_tokenizer().get() : nullptr);
}

std::string repeat(const std::string& text, int times, const std::string& separator) {
  std::string out;
  for (int i = 0; i < times; ++i) out += (i > 0 ? separator : "") + text;
  return out;
}

// ---- good lines -------------------------------------------------------------------------------

struct GoodCase {
  const char* name;
  std::string line;
  Task task;
  std::function<bool(const Request&)> holds;
};

std::string body(const std::string& fields) {
  return R"({"custom_id":"c","method":"POST","url":"/v1/completions","body":{"model":"m",)" + fields + "}}";
}

const std::vector<GoodCase>& good_cases() {
  using R = Request;
  static const std::vector<GoodCase> cases = {
      {"defaults", R"({"id":"a","tokens":[1,2,3]})", Task::generate,
       [](const R& r) {
         return r.id == "a" && r.index == 7 && r.tokens == std::vector<int>{1, 2, 3} && r.max_tokens == 128 &&
                !r.max_tokens_given && r.temperature == 0 && r.top_p == 1 && r.top_k == 0 && r.stop.empty() &&
                !r.ignore_eos && !r.logprobs_given && !r.openai && !r.stream;
       }},
      {"custom_id_on_own_line", R"({"custom_id":"x","tokens":[0]})", Task::generate,
       [](const R& r) { return r.id == "x" && !r.openai; }},
      {"integer_id", R"({"id":42,"tokens":[0]})", Task::generate, [](const R& r) { return r.id == "42"; }},
      {"negative_integer_id", R"({"id":-42,"tokens":[0]})", Task::generate,
       [](const R& r) { return r.id == "-42"; }},
      {"largest_integer_id", R"({"id":18446744073709551615,"tokens":[0]})", Task::generate,
       [](const R& r) { return r.id == "18446744073709551615"; }},
      {"no_id_is_called_by_line_number", R"({"tokens":[0]})", Task::generate,
       [](const R& r) { return r.id == "7"; }},
      {"id_of_512_bytes", R"({"id":")" + std::string(512, 'i') + R"(","tokens":[0]})", Task::generate,
       [](const R& r) { return r.id.size() == 512; }},
      {"prompt_gets_special_tokens", R"({"id":"a","prompt":"In the beginning"})", Task::generate,
       [](const R& r) {
         const auto expected = test_tokenizer()->encode("In the beginning", true);
         return r.tokens == expected.value() && r.tokens.front() == test_tokenizer()->begin_token();
       }},
      {"empty_prompt_is_the_begin_token", R"({"id":"a","prompt":""})", Task::generate,
       [](const R& r) { return r.tokens.size() == 1; }},
      {"escapes_in_prompt", R"({"id":"a","prompt":"\u00e9\n\ud83d\ude00"})", Task::generate,
       [](const R& r) { return r.tokens == test_tokenizer()->encode("\u00e9\n\U0001F600", true).value(); }},
      {"max_tokens", R"({"id":"a","tokens":[1],"max_tokens":1})", Task::generate,
       [](const R& r) { return r.max_tokens == 1 && r.max_tokens_given; }},
      {"largest_max_tokens", R"({"id":"a","tokens":[1],"max_tokens":2147483647})", Task::generate,
       [](const R& r) { return r.max_tokens == 2147483647U; }},
      {"integer_temperature", R"({"id":"a","tokens":[1],"temperature":1})", Task::generate,
       [](const R& r) { return r.temperature == 1.0F; }},
      {"float_temperature", R"({"id":"a","tokens":[1],"temperature":0.7})", Task::generate,
       [](const R& r) { return r.temperature == 0.7F; }},
      {"tiny_temperature_is_greedy", R"({"id":"a","tokens":[1],"temperature":1e-6})", Task::generate,
       [](const R& r) { return r.temperature == 0.0F; }},
      {"negative_zero_temperature", R"({"id":"a","tokens":[1],"temperature":-0.0})", Task::generate,
       [](const R& r) { return r.temperature == 0.0F && !std::signbit(r.temperature); }},
      {"top_p_and_top_k", R"({"id":"a","tokens":[1],"top_p":0.95,"top_k":40})", Task::generate,
       [](const R& r) { return r.top_p == 0.95F && r.top_k == 40; }},
      {"seed", R"({"id":"a","tokens":[1],"seed":1000})", Task::generate, [](const R& r) { return r.seed == 1000; }},
      {"largest_seed", R"({"id":"a","tokens":[1],"seed":18446744073709551615})", Task::generate,
       [](const R& r) { return r.seed == std::numeric_limits<std::uint64_t>::max(); }},
      {"negative_seed", R"({"id":"a","tokens":[1],"seed":-1})", Task::generate,
       [](const R& r) { return r.seed == std::numeric_limits<std::uint64_t>::max(); }},
      {"seed_zero_is_a_seed", R"({"id":"a","tokens":[1],"seed":0})", Task::generate,
       [](const R& r) { return r.seed == 0; }},
      {"unset_seed_depends_on_id", R"({"id":"a","tokens":[1]})", Task::generate,
       [](const R& r) { return r.seed == default_seed(0, "a") && r.seed != default_seed(0, "b"); }},
      {"stop_string", R"({"id":"a","tokens":[1],"stop":"\n\n"})", Task::generate,
       [](const R& r) { return r.stop == std::vector<std::string>{"\n\n"}; }},
      {"stop_list", R"({"id":"a","tokens":[1],"stop":["x","yz"]})", Task::generate,
       [](const R& r) { return r.stop == std::vector<std::string>{"x", "yz"}; }},
      {"stop_empty_list", R"({"id":"a","tokens":[1],"stop":[]})", Task::generate,
       [](const R& r) { return r.stop.empty(); }},
      {"ignore_eos", R"({"id":"a","tokens":[1],"ignore_eos":true})", Task::generate,
       [](const R& r) { return r.ignore_eos; }},
      {"logprobs", R"({"id":"a","tokens":[1],"logprobs":5})", Task::generate,
       [](const R& r) { return r.logprobs == 5 && r.logprobs_given; }},
      {"logprobs_zero", R"({"id":"a","tokens":[1],"logprobs":0})", Task::generate,
       [](const R& r) { return r.logprobs == 0 && r.logprobs_given; }},
      {"nulls_are_unset",
       R"({"id":"a","tokens":[1],"max_tokens":null,"temperature":null,"top_p":null,"top_k":null,"seed":null,)"
       R"("stop":null,"ignore_eos":null,"logprobs":null})",
       Task::generate,
       [](const R& r) {
         return r.max_tokens == 128 && !r.max_tokens_given && !r.logprobs_given && r.seed == default_seed(0, "a");
       }},
      {"fields_of_generate_under_score",
       R"({"id":"a","tokens":[1,2],"max_tokens":9,"temperature":0.5,"top_p":0.9,"top_k":3,"seed":4,"stop":"x",)"
       R"("ignore_eos":true,"logprobs":2})",
       Task::score, [](const R& r) { return r.task == Task::score && !r.logprobs_given; }},
      {"fields_of_embed_under_generate", R"({"id":"a","tokens":[1],"pooling":"last","normalize":true})",
       Task::generate, [](const R& r) { return r.task == Task::generate; }},
      {"score", R"({"id":"a","tokens":[1,2]})", Task::score, [](const R& r) { return r.task == Task::score; }},
      {"embed_defaults", R"({"id":"a","tokens":[1]})", Task::embed,
       [](const R& r) { return r.pooling == Pooling::mean && !r.normalize; }},
      {"embed_last_normalized", R"({"id":"a","tokens":[1],"pooling":"last","normalize":true})", Task::embed,
       [](const R& r) { return r.pooling == Pooling::last && r.normalize; }},
      {"white_space_around", " \t{ \"id\" : \"a\" , \"tokens\" : [ 1 ] } \r", Task::generate,
       [](const R& r) { return r.id == "a"; }},
      {"openai_text", body(R"("prompt":"Hello")"), Task::generate,
       [](const R& r) {
         return r.openai && r.id == "c" && r.model_name == "m" && r.max_tokens == 16 && r.temperature == 1.0F &&
                !r.max_tokens_given && r.tokens == test_tokenizer()->encode("Hello", true).value();
       }},
      {"openai_tokens", body(R"("prompt":[1,2])"), Task::generate,
       [](const R& r) { return r.tokens == std::vector<int>{1, 2}; }},
      {"openai_list_of_one_text", body(R"("prompt":["Hello"])"), Task::generate,
       [](const R& r) { return r.tokens == test_tokenizer()->encode("Hello", true).value(); }},
      {"openai_list_of_one_token_list", body(R"("prompt":[[3,4]])"), Task::generate,
       [](const R& r) { return r.tokens == std::vector<int>{3, 4}; }},
      {"openai_sampling",
       body(R"("prompt":[1],"max_tokens":9,"temperature":0,"top_p":0.5,"seed":3,"stop":["q"],"logprobs":2)"),
       Task::generate,
       [](const R& r) {
         return r.max_tokens == 9 && r.temperature == 0 && r.top_p == 0.5F && r.seed == 3 && r.stop.size() == 1 &&
                r.logprobs == 2;
       }},
      {"openai_fields_that_ask_for_nothing",
       body(R"("prompt":[1],"n":1,"best_of":1,"echo":false,"stream":false,"stream_options":null,"suffix":null,)"
            R"("presence_penalty":0,"frequency_penalty":0.0,"logit_bias":{},"user":"u")"),
       Task::generate, [](const R& r) { return r.openai; }},
      {"openai_without_model",
       R"({"custom_id":"c","method":"POST","url":"/v1/completions","body":{"prompt":[1]}})", Task::generate,
       [](const R& r) { return r.model_name.empty(); }},
  };
  return cases;
}

TEST(RequestParser, GoodLines) {
  for (const GoodCase& test : good_cases()) {
    const Request request = parse(test.line, test.task);
    EXPECT_TRUE(request.error.is_ok()) << test.name << ": " << request.error.to_string();
    EXPECT_TRUE(test.holds(request)) << test.name;
    EXPECT_EQ(request_line_id(test.line, 7), request.id) << test.name;
  }
}

// ---- bad lines --------------------------------------------------------------------------------

struct BadCase {
  std::string line;
  std::string error;
  ErrorCode code = ErrorCode::invalid_input;
  Task task = Task::generate;
  bool with_tokenizer = false;
};

std::string field(const std::string& text) { return R"({"id":"a","tokens":[1],)" + text + "}"; }

std::vector<BadCase> bad_json() {
  return {
      {"{", "not valid JSON: syntax error while parsing object key - unexpected end of input; expected string literal (byte 2)"},
      {"hello", "not valid JSON: syntax error while parsing value - invalid literal (byte 1)"},
      {R"({"id":"a","tokens":[1]} x)", "not valid JSON: syntax error while parsing value - invalid literal; expected end of input (byte 25)"},
      {R"({"id":"a","tokens":[1]}{})", "not valid JSON: syntax error while parsing value - unexpected '{'; expected end of input (byte 24)"},
      {R"({"id":"a","tokens":[1],})", "not valid JSON: syntax error while parsing object key - unexpected '}'; expected string literal (byte 24)"},
      {R"({"id":'a'})", "not valid JSON: syntax error while parsing value - invalid literal (byte 7)"},
      {R"({"temperature":NaN})", "not valid JSON: syntax error while parsing value - invalid literal (byte 16)"},
      {R"({"tokens":[01]})", "not valid JSON: syntax error while parsing array - unexpected number literal; expected ']' (byte 13)"},
      {R"({"temperature":1e999})", "not valid JSON: [json.exception.out_of_range.406] number overflow parsing '1e999' (byte 20)"},
      {"{\"id\":\"\xff\"}", "not valid JSON: syntax error while parsing value - invalid string: ill-formed UTF-8 byte (byte 8)"},
      {"{\"id\":\"\xed\xa0\x80\"}", "not valid JSON: syntax error while parsing value - invalid string: ill-formed UTF-8 byte (byte 9)"},
      {R"({"id":"\ud800"})", "not valid JSON: syntax error while parsing value - invalid string: surrogate U+D800..U+DBFF must be followed by U+DC00..U+DFFF (byte 14)"},
      {std::string("{\"id\":\"a\"}\0{", 12), "not valid JSON: a NUL byte (byte 11)"},
      {std::string("{\"id\":\"a\0b\"}", 12), "not valid JSON: a NUL byte (byte 9)"},
      {R"({"id":"a","id":"b","tokens":[1]})", "not valid JSON: the key 'id' stands twice in one object; keep one"},
      {R"({"id":"a","x":{"k":1,"k":2}})", "not valid JSON: the key 'k' stands twice in one object; keep one"},
      {repeat("[", 65, ""), "not valid JSON: it is nested deeper than 64 levels"},
      {"[" + repeat("1", 2 << 20, ",") + "]", "not valid JSON: it has more than 2097152 values"},
      {"[1]", "a request line is a JSON object: found a list"},
      {"\"text\"", "a request line is a JSON object: found the string \"text\""},
      {"null", "a request line is a JSON object: found null"},
      {"3", "a request line is a JSON object: found the number 3"},
  };
}

std::vector<BadCase> bad_own_fields() {
  const std::string long_id(513, 'i');
  return {
      {R"({"id":"a"})", "neither 'prompt' nor 'tokens' is given; give one of them"},
      {R"({})", "neither 'prompt' nor 'tokens' is given; give one of them"},
      {R"({"id":"a","tokens":[1],"prompt":"x"})", "both 'prompt' and 'tokens' are given; give one of them",
       ErrorCode::invalid_input, Task::generate, true},
      {R"({"id":"","tokens":[1]})", "field 'id': expected a string of 1 to 512 bytes or an integer, found the string \"\""},
      {R"({"id":")" + long_id + R"(","tokens":[1]})",
       "field 'id': expected a string of 1 to 512 bytes or an integer, found the string \"" + std::string(40, 'i') + "\"..."},
      {R"({"id":1.5,"tokens":[1]})", "field 'id': expected a string of 1 to 512 bytes or an integer, found the number 1.5"},
      {R"({"id":null,"tokens":[1]})", "field 'id': expected a string of 1 to 512 bytes or an integer, found null"},
      {R"({"custom_id":true,"tokens":[1]})", "field 'custom_id': expected a string of 1 to 512 bytes or an integer, found true"},
      {R"({"id":"a","custom_id":"b","tokens":[1]})", "fields 'id' and 'custom_id' are the same thing; give one of them"},
      {R"({"id":"a","prompt":"x"})", "field 'prompt' needs a tokenizer, and this model has none; give token ids",
       ErrorCode::unsupported},
      {R"({"id":"a","prompt":5})", "field 'prompt': expected a string, found the number 5"},
      {R"({"id":"a","prompt":[1,2]})", "field 'prompt': expected a string (token ids go into 'tokens'), found a list"},
      {R"({"id":"a","tokens":[]})", "field 'tokens': expected a list of at least one token id, found an empty list"},
      {R"({"id":"a","tokens":"1 2"})", "field 'tokens': expected a list of at least one token id, found the string \"1 2\""},
      {R"({"id":"a","tokens":[1,1000]})", "field 'tokens[1]': expected a token id from 0 to 999, found the number 1000"},
      {R"({"id":"a","tokens":[-1]})", "field 'tokens[0]': expected a token id from 0 to 999, found the number -1"},
      {R"({"id":"a","tokens":[1.0]})", "field 'tokens[0]': expected a token id from 0 to 999, found the number 1.0"},
      {R"({"id":"a","tokens":["1"]})", "field 'tokens[0]': expected a token id from 0 to 999, found the string \"1\""},
      {R"({"id":"a","tokens":[18446744073709551616]})", "field 'tokens[0]': expected a token id from 0 to 999, found the number 18446744073709551616.0"},
      {field(R"("max_token":5)"), "unknown field 'max_token'; did you mean 'max_tokens'?"},
      {field(R"("Temperature":1)"), "unknown field 'Temperature'; did you mean 'temperature'?"},
      {field(R"("topp":1)"), "unknown field 'topp'; did you mean 'top_p'?"},
      {field(R"("sede":1)"), "unknown field 'sede'; did you mean 'seed'?"},
      {field(R"("frobnicate":1)"), "unknown field 'frobnicate'; remove it"},
      {field(R"("":1)"), "unknown field ''; remove it"},
      {field(R"("unknown":null)"), "unknown field 'unknown'; remove it"},
      {field(R"("max_tokens":0)"), "field 'max_tokens': expected an integer from 1 to 2147483647, found the number 0"},
      {field(R"("max_tokens":-3)"), "field 'max_tokens': expected an integer from 1 to 2147483647, found the number -3"},
      {field(R"("max_tokens":2147483648)"), "field 'max_tokens': expected an integer from 1 to 2147483647, found the number 2147483648"},
      {field(R"("max_tokens":"many")"), "field 'max_tokens': expected an integer from 1 to 2147483647, found the string \"many\""},
      {field(R"("max_tokens":2.0)"), "field 'max_tokens': expected an integer from 1 to 2147483647, found the number 2.0"},
      {field(R"("max_tokens":true)"), "field 'max_tokens': expected an integer from 1 to 2147483647, found true"},
      {field(R"("temperature":-0.1)"), "field 'temperature': expected a number from 0 to 100, found the number -0.1"},
      {field(R"("temperature":100.5)"), "field 'temperature': expected a number from 0 to 100, found the number 100.5"},
      {field(R"("temperature":"hot")"), "field 'temperature': expected a number from 0 to 100, found the string \"hot\""},
      {field(R"("top_p":0)"), "field 'top_p': expected a number above 0 and at most 1, found the number 0"},
      {field(R"("top_p":1e-300)"), "field 'top_p': expected a number above 0 and at most 1, found the number 1e-300"},
      {field(R"("top_p":1.01)"), "field 'top_p': expected a number above 0 and at most 1, found the number 1.01"},
      {field(R"("top_k":-1)"), "field 'top_k': expected an integer from 0 to 2147483647, found the number -1"},
      {field(R"("seed":1.5)"), "field 'seed': expected an integer from -9223372036854775808 to 18446744073709551615, found the number 1.5"},
      {field(R"("seed":"x")"), "field 'seed': expected an integer from -9223372036854775808 to 18446744073709551615, found the string \"x\""},
      {field(R"("stop":5)"), "field 'stop': expected a string or a list of at most 16 strings, found the number 5"},
      {field(R"("stop":["a",5])"), "field 'stop': expected a string or a list of at most 16 strings, found the number 5"},
      {field(R"("stop":"")"), "field 'stop': expected stop strings of 1 to 1024 bytes, found the string \"\""},
      {field(R"("stop":[")" + std::string(1025, 's') + "\"]"),
       "field 'stop': expected stop strings of 1 to 1024 bytes, found the string \"" + std::string(40, 's') + "\"..."},
      {field(R"("stop":[)" + repeat("\"x\"", 17, ",") + "]"), "field 'stop': expected at most 16 stop strings, found 17"},
      {field(R"("stop":"x")"), "field 'stop' needs a tokenizer, and this model has none; remove the field",
       ErrorCode::unsupported},
      {field(R"("ignore_eos":1)"), "field 'ignore_eos': expected true or false, found the number 1"},
      {field(R"("logprobs":true)"), "field 'logprobs': expected an integer from 0 to 100, found true"},
      {field(R"("logprobs":101)"), "field 'logprobs': expected an integer from 0 to 100, found the number 101"},
      {field(R"("pooling":"sum")"), "field 'pooling': expected \"mean\" or \"last\", found the string \"sum\""},
      {field(R"("max_tokens":0)"), "field 'max_tokens': expected an integer from 1 to 2147483647, found the number 0",
       ErrorCode::invalid_input, Task::score},
      {field(R"("temperature":-1)"), "field 'temperature': expected a number from 0 to 100, found the number -1",
       ErrorCode::invalid_input, Task::embed},
      {field(R"("pooling":"max")"), "field 'pooling': expected \"mean\" or \"last\", found the string \"max\"",
       ErrorCode::invalid_input, Task::embed},
      {field(R"("normalize":"yes")"), "field 'normalize': expected true or false, found the string \"yes\"",
       ErrorCode::invalid_input, Task::embed},
  };
}

std::vector<BadCase> bad_openai_lines() {
  const auto unsupported = ErrorCode::unsupported;
  return {
      {R"({"method":"POST","url":"/v1/completions","body":{"prompt":[1]}})", "field 'custom_id' is missing; give each line its own"},
      {R"({"custom_id":"c","url":"/v1/completions","body":{"prompt":[1]}})",
       "field 'method' is missing; give custom_id, method, url and body, as in an OpenAI batch file"},
      {R"({"custom_id":"c","method":"POST","body":{"prompt":[1]}})",
       "field 'url' is missing; give custom_id, method, url and body, as in an OpenAI batch file"},
      {R"({"custom_id":"c","method":"POST","url":"/v1/completions"})",
       "field 'body' is missing; give custom_id, method, url and body, as in an OpenAI batch file"},
      {R"({"custom_id":"c","method":"GET","url":"/v1/completions","body":{}})", "field 'method': expected \"POST\", found the string \"GET\""},
      {R"({"custom_id":"c","method":"POST","url":"/v1/chat/completions","body":{"messages":[]}})",
       "only completions are supported: field 'url' is the string \"/v1/chat/completions\"; use \"/v1/completions\" with a prompt", unsupported},
      {R"({"custom_id":"c","method":"POST","url":"/v1/embeddings","body":{"input":"x"}})",
       "only completions are supported: field 'url' is the string \"/v1/embeddings\"; use \"/v1/completions\" with a prompt", unsupported},
      {R"({"custom_id":"c","method":"POST","url":7,"body":{}})", "field 'url': expected \"/v1/completions\", found the number 7"},
      {R"({"custom_id":"c","method":"POST","url":"/v1/completions","body":[]})", "field 'body': expected an object, found an empty list"},
      {R"({"custom_id":"c","id":"d","method":"POST","url":"/v1/completions","body":{}})", "unknown field 'id'; remove it"},
      {R"({"custom_id":"c","method":"POST","url":"/v1/completions","body":{},"max_tokens":3})", "unknown field 'max_tokens'; remove it"},
      {R"({"custom_id":"c","method":"POST","url":"/v1/completions","body":{}})", "field 'body.prompt' is missing; give a string or a list of token ids"},
      {body(R"("prompt":["a","b"])"),
       "several prompts in one request are not supported: field 'body.prompt' has 2; write one line for each", unsupported},
      {body(R"("prompt":[[1],[2],[3]])"),
       "several prompts in one request are not supported: field 'body.prompt' has 3; write one line for each", unsupported},
      {body(R"("prompt":[])"), "field 'body.prompt': expected a list of at least one token id, found an empty list"},
      {body(R"("prompt":null)"), "field 'body.prompt': expected a string or a list of token ids, found null"},
      {body(R"("prompt":[1,"a"])"), "field 'body.prompt[1]': expected a token id from 0 to 999, found the string \"a\""},
      {body(R"("prompt":[1],"n":2)"), "field 'body.n' is not supported except as 1: found the number 2; remove the field", unsupported},
      {body(R"("prompt":[1],"echo":true)"), "field 'body.echo' is not supported except as false: found true; remove the field", unsupported},
      {body(R"("prompt":[1],"stream":true)"), "field 'body.stream' is not supported except as false: found true; remove the field", unsupported},
      {body(R"("prompt":[1],"suffix":"x")"), "field 'body.suffix' is not supported except as null: found the string \"x\"; remove the field", unsupported},
      {body(R"("prompt":[1],"presence_penalty":0.5)"),
       "field 'body.presence_penalty' is not supported except as 0: found the number 0.5; remove the field", unsupported},
      {body(R"("prompt":[1],"logit_bias":{"5":1})"),
       "field 'body.logit_bias' is not supported except as {}: found an object; remove the field", unsupported},
      {body(R"("prompt":[1],"max_token":1)"), "unknown field 'body.max_token'; did you mean 'body.max_tokens'?"},
      {body(R"("messages":[])"), "unknown field 'body.messages'; remove it"},
      {body(R"("prompt":[1],"temperature":-1)"), "field 'body.temperature': expected a number from 0 to 100, found the number -1"},
      {body(R"("prompt":[1],"user":1)"), "field 'body.user': expected a string, found the number 1"},
      {R"({"custom_id":"c","method":"POST","url":"/v1/completions","body":{"model":5,"prompt":[1]}})",
       "field 'body.model': expected a string, found the number 5"},
      {body(R"("prompt":[1])"), "a completion cannot run with the task score; use --task generate", unsupported, Task::score},
  };
}

void expect_errors(const std::vector<BadCase>& cases) {
  for (const BadCase& test : cases) {
    const std::string shown = test.line.substr(0, 120);
    const Request request = parse(test.line, test.task, test.with_tokenizer);
    EXPECT_EQ(request.error.to_string(), test.error) << shown;
    EXPECT_EQ(request.error.code(), test.code) << shown;
    EXPECT_EQ(request.index, 7U);
    EXPECT_EQ(request_line_id(test.line, 7), request.id) << shown;
  }
}

TEST(RequestParser, LinesThatAreNotJson) { expect_errors(bad_json()); }
TEST(RequestParser, WrongFields) { expect_errors(bad_own_fields()); }

TEST(RequestParser, WrongOpenaiLines) {
  expect_errors(bad_openai_lines());
  for (const BadCase& test : bad_openai_lines()) {
    EXPECT_TRUE(parse(test.line, test.task, false).openai) << test.line;
  }
}

// A wrong line is still answered under its id whenever that can be read.
TEST(RequestParser, KeepsTheIdOfAWrongLine) {
  EXPECT_EQ(parse(R"({"tokens":[1],"max_tokens":0,"id":"late"})").id, "late");
  EXPECT_EQ(parse(R"({"id":"a","nonsense":1})").id, "a");
  EXPECT_EQ(parse("{broken").id, "");
}

TEST(RequestParser, SeedIsXxh3OfJobSeedAndId) {
  // XXH3_64bits of 8 zero bytes + "a", and of 0x0102 little-endian + "", from the xxhash 0.8 reference library.
  EXPECT_EQ(default_seed(0, "a"), 0x2ee05ca6484d3731ULL);
  EXPECT_EQ(default_seed(0x0102, ""), 0xe13ea9659fd5ff37ULL);
  EXPECT_NE(default_seed(0, "a"), default_seed(1, "a"));
}

TEST(RequestParser, TooLongLine) {
  const Request request = too_long_request(9, Task::embed);
  EXPECT_EQ(request.index, 9U);
  EXPECT_EQ(request.error.to_string(), "the line is longer than 67108864 bytes; split it or shorten its prompt");
}

// Whatever happens to the bytes of a line, it is parsed or refused, and its answer can be written.
TEST(RequestParser, EveryMutationIsParsedOrRefused) {
  const std::string base = body(R"("prompt":"Hi \u00e9","max_tokens":9,"temperature":0.5,"stop":["q"],"logprobs":2)");
  std::uint64_t state = 1;
  int refused = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string line = base;
    for (int edit = 0; edit < 2; ++edit) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      const std::size_t at = (state >> 33) % line.size();
      const char byte = static_cast<char>(state >> 25);
      if ((state >> 60) % 3 == 0) {
        line.erase(at, 1 + (state >> 50) % 4);
      } else if ((state >> 60) % 3 == 1) {
        line.insert(at, 1, byte);
      } else {
        line[at] = byte;
      }
    }
    refused += parse(line).error.is_ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 2000);
}

}  // namespace
}  // namespace colibri
