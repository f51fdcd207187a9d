// Reading safetensors: values of every dtype, and a table of files that must be refused.
#include "io/checkpoint/safetensors.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/checkpoint/temporary_folder.hpp"

namespace colibri {
namespace {

using test::TemporaryFolder;

std::string length_prefix(std::uint64_t length) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i));
  return bytes;
}

std::string file_of(const std::string& header, const std::string& data) {
  return length_prefix(header.size()) + header + data;
}

TEST(Safetensors, ReadsF32F16AndBf16) {
  const TemporaryFolder folder;
  // 1.0 and -2.5 in each format; 2^-24 is the smallest f16 subnormal. The bf16 tensor lies at an odd place.
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
      R"("h":{"dtype":"F16","shape":[3,1],"data_offsets":[8,14]},"u":{"dtype":"U8","shape":[1],"data_offsets":[14,15]},)"
      R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[15,19]},"e":{"dtype":"F32","shape":[0],"data_offsets":[19,19]}})";
  const std::string data(
      "\x00\x00\x80\x3f\x00\x00\x20\xc0"
      "\x00\x3c\x00\xc1\x01\x00"
      "\x07"
      "\x80\x3f\x20\xc0",
      19);
  test::write_file(folder / "x.safetensors", file_of(header, data));
  const auto file = SafetensorsFile::open(folder / "x.safetensors");
  ASSERT_TRUE(file) << file.status().to_string();
  EXPECT_EQ(file->tensors().size(), 5u);
  EXPECT_EQ(*file->read_f32("a"), (std::vector<float>{1.0F, -2.5F}));
  EXPECT_EQ(*file->read_f32("h"), (std::vector<float>{1.0F, -2.5F, std::ldexp(1.0F, -24)}));
  EXPECT_EQ(*file->read_f32("b"), (std::vector<float>{1.0F, -2.5F}));
  EXPECT_TRUE(file->read_f32("e")->empty());
  EXPECT_EQ(file->read_f32("u").status().code(), ErrorCode::unsupported);
  EXPECT_EQ(file->read_f32("none").status().code(), ErrorCode::not_found);
  EXPECT_EQ(file->find("h")->shape, (std::vector<std::uint64_t>{3, 1}));
}

TEST(Safetensors, WriterAndReaderAgree) {
  const TemporaryFolder folder;
  SafetensorsWriter writer;
  const std::vector<float> a{1.5F, -0.0F, 3e38F};
  const std::vector<float> b{7.0F};
  writer.add("a.x", {1, 3}, a);
  writer.add("scalar \"quoted\"", {}, b);
  ASSERT_TRUE(writer.write(folder / "w.safetensors"));
  const auto file = SafetensorsFile::open(folder / "w.safetensors");
  ASSERT_TRUE(file) << file.status().to_string();
  EXPECT_EQ(*file->read_f32("a.x"), a);
  EXPECT_EQ(*file->read_f32("scalar \"quoted\""), b);
  EXPECT_EQ(file->find("a.x")->shape, (std::vector<std::uint64_t>{1, 3}));
  EXPECT_EQ(file->tensors().front().offset % 8, 0u);
  SafetensorsWriter wrong;
  wrong.add("a", {2}, b);
  EXPECT_FALSE(wrong.write(folder / "no.safetensors"));
  SafetensorsWriter twice;
  twice.add("a", {1}, b);
  twice.add("a", {1}, b);
  EXPECT_FALSE(twice.write(folder / "no.safetensors"));
}

struct BadFile {
  const char* name;
  std::string content;
  const char* part;  // of the message
};

TEST(Safetensors, RefusesDamagedFiles) {
  const std::string four(4, 'x');
  const auto tensor = [](const std::string& fields) { return "{\"t\":{" + fields + "}}"; };
  const std::string good = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "[";
  const BadFile files[] = {
      {"empty", "", "too short"},
      {"header of 2^60 bytes", length_prefix(1ULL << 60) + "{}", "found 1152921504606846976"},
      {"header of 2^64 - 1 bytes", length_prefix(~0ULL) + "{}", "too long"},
      {"header longer than the file", length_prefix(100) + "{}", "expected at most 2 bytes, found 100"},
      {"no object", file_of("[1]", ""), "start with {"},
      {"empty header", file_of("", ""), "start with {"},
      {"bad json", file_of("{\"t\":", ""), "damaged safetensors header"},
      {"text after the object", file_of("{} x", ""), "damaged safetensors header"},
      {"deep nesting", file_of("{\"t\":" + deep, ""), "a list"},
      {"nested objects", file_of(R"({"t":{"shape":{}}})", ""), "an object"},
      {"not utf-8", file_of("{\"\xff\":1}", ""), "damaged safetensors header"},
      {"number as tensor", file_of(R"({"t":1})", ""), "a number"},
      {"null shape", file_of(tensor(R"("dtype":"F32","shape":null,"data_offsets":[0,4])"), four), "null"},
      {"negative size", file_of(tensor(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), four),
       "negative"},
      {"huge size",
       file_of(tensor(R"("dtype":"F32","shape":[99999999999999999999999],"data_offsets":[0,4])"), four),
       "huge number"},
      {"too many dimensions",
       file_of(tensor(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4])"), four),
       "dimensions"},
      {"product overflows",
       file_of(tensor(R"("dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,4])"), four),
       "overflows"},
      {"bits overflow",
       file_of(tensor(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4])"), four),
       "overflows"},
      {"unknown dtype", file_of(tensor(R"("dtype":"F33","shape":[1],"data_offsets":[0,4])"), four),
       "\"F33\""},
      {"missing field", file_of(tensor(R"("dtype":"F32","shape":[1])"), four), "lacks"},
      {"unknown field", file_of(tensor(good + R"(,"extra":1)"), four), "\"extra\""},
      {"field twice", file_of(tensor(good + R"(,"dtype":"F32")"), four), "twice"},
      {"size does not fit", file_of(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), four),
       "expected 8 bytes, found 4"},
      {"offsets reversed", file_of(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), four),
       "no range"},
      {"one offset", file_of(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), four), "no range"},
      {"outside the data", file_of(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), four),
       "truncated"},
      {"far outside",
       file_of(
           tensor(R"("dtype":"U8","shape":[0],"data_offsets":[18446744073709551615,18446744073709551615])"),
           four),
       "outside"},
      {"gap", file_of(tensor(R"("dtype":"U8","shape":[1],"data_offsets":[3,4])"), four), "gap"},
      {"rest", file_of(tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1])"), four),
       "expected 1 bytes of data, found 4"},
      {"overlap",
       file_of(
           R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
           four),
       "overlaps"},
      {"name twice",
       file_of(
           R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
           four),
       "occurs twice"},
      {"metadata with a number", file_of(R"({"__metadata__":{"a":1}})", ""), "a number"},
  };
  const TemporaryFolder folder;
  const auto path = folder / "bad.safetensors";
  for (const BadFile& bad : files) {
    test::write_file(path, bad.content);
    const auto file = SafetensorsFile::open(path);
    ASSERT_FALSE(file) << bad.name;
    const std::string message = file.status().to_string();
    EXPECT_NE(message.find(bad.part), std::string::npos) << bad.name << ": " << message;
    EXPECT_NE(message.find(path.string()), std::string::npos) << bad.name << ": " << message;
    // The place as data: the length at the front, or the header after it, or where the file ends.
    EXPECT_EQ(file.status().file(), path.string()) << bad.name;
    const bool too_short = message.find("too short") != std::string::npos;
    const bool too_long = message.find("too long") != std::string::npos;
    EXPECT_EQ(file.status().offset(), too_short ? bad.content.size() : too_long ? 0U : 8U) << bad.name;
  }
}

TEST(Safetensors, EveryTruncationOfAFileIsRefused) {
  const TemporaryFolder folder;
  const std::string content =
      test::read_file(std::string(COLIBRI_TEST_DATA) + "/golden/olmoe/golden.safetensors");
  const auto path = folder / "cut.safetensors";
  for (std::size_t size = 0; size < content.size(); size += 1 + size / 7) {
    test::write_file(path, content.substr(0, size));
    EXPECT_FALSE(SafetensorsFile::open(path)) << size;
  }
}

TEST(Safetensors, FoldersAndDanglingLinksAreNamed) {
  const TemporaryFolder folder;
  EXPECT_NE(SafetensorsFile::open(folder.path()).status().to_string().find("not a regular file"),
            std::string::npos);
  std::filesystem::create_symlink("blobs/gone", folder / "link.safetensors");
  const std::string message = SafetensorsFile::open(folder / "link.safetensors").status().to_string();
  EXPECT_NE(message.find("link.safetensors -> blobs/gone"), std::string::npos) << message;
}

}  // namespace
}  // namespace colibri
