// Sizes in text: values by hand, in units that the names define.
#include <gtest/gtest.h>

#include "topology/param_value.hpp"
#include "topology/pipeline_spec.hpp"

namespace colibri {
namespace {

TEST(ParseBytes, Values) {
  const std::pair<std::string_view, std::uint64_t> cases[] = {
      {"0", 0},
      {"1000", 1000},
      {"12B", 12},
      {"4GiB", 4294967296},
      {"4 GiB", 4294967296},
      {"4gib", 4294967296},
      {"128KiB", 131072},
      {"2MiB", 2097152},
      {"1TiB", 1099511627776},
      {"1.5GB", 1500000000},
      {"3kB", 3000},
      {"0.5KiB", 512},
      {"1.1GB", 1100000000},
      {"0.3KiB", 307},
      {"18446744073709551615", 18446744073709551615u},
      {"16777215TiB", 18446742974197923840u},
  };
  for (const auto& [text, bytes] : cases) {
    const auto result = parse_bytes(text);
    ASSERT_TRUE(result.is_ok()) << text << ": " << result.status().to_string();
    EXPECT_EQ(*result, bytes) << text;
  }
}

TEST(ParseBytes, Refused) {
  for (const std::string_view text :
       {"",   " ",     "x",      "-1",  "+1",    "1.5",  "1.",  ".5GiB",          "1e3",     "4G",
        "4K", "4GiBs", "4  GiB", "GiB", "1,5GB", "0x10", "25%", "1.0000000001GB", "1.5.5GB", "4 "}) {
    EXPECT_FALSE(parse_bytes(text).is_ok()) << text;
  }
  for (const std::string_view text : {"18446744073709551616", "16777216TiB", "99999999999999999999GiB"}) {
    const auto result = parse_bytes(text);
    ASSERT_FALSE(result.is_ok()) << text;
    EXPECT_NE(result.status().message().find("too large"), std::string_view::npos) << text;
  }
}

TEST(FormatBytes, Values) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1610612736), "1.50 GiB");
  EXPECT_EQ(format_bytes(1048575), "1.00 MiB");
  EXPECT_EQ(format_bytes(18446744073709551615u), "16.00 EiB");
}

TEST(ExactBytesText, ReadsBack) {
  for (const std::uint64_t bytes : {0ull, 1ull, 1023ull, 1024ull, 1536ull, 4294967296ull, 4294967297ull,
                                    18446744073709551615ull, 1ull << 63}) {
    const auto back = parse_bytes(exact_bytes_text(bytes));
    ASSERT_TRUE(back.is_ok());
    EXPECT_EQ(*back, bytes);
  }
  EXPECT_EQ(exact_bytes_text(4294967296), "4GiB");
  EXPECT_EQ(exact_bytes_text(1536), "1536");
}

}  // namespace
}  // namespace colibri
