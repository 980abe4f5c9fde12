// The safetensors reader: what it reads, and what it refuses by the tensor's or the file's name.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "model/safetensors.h"
#include "test_checkpoint.h"

namespace replayssm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// A file with this header and so many bytes of data.
std::string file_with(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file + header + std::string(data_bytes, 'x');
}

std::string refusal(const std::string& file) {
  const auto tensors = parse_safetensors(bytes_of(file), "shard");
  return tensors ? "" : tensors.error().message;
}

TEST(Safetensors, tensors_of_every_type_and_shape_are_read) {
  const std::string file = file_with(
      R"({"__metadata__": {"format": "pt"},
          "matrix": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
          "bytes": {"dtype": "U8", "shape": [3], "data_offsets": [12, 15]},
          "flags": {"dtype": "BOOL", "shape": [1], "data_offsets": [15, 16]},
          "scalar": {"dtype": "F32", "shape": [], "data_offsets": [16, 20]},
          "empty": {"dtype": "F64", "shape": [0, 4], "data_offsets": [20, 20]},
          "eight": {"dtype": "F8_E4M3", "shape": [1, 1, 4], "data_offsets": [20, 24]},
          "wide": {"dtype": "I64", "shape": [1], "data_offsets": [24, 32]}})",
      32);
  const auto tensors = parse_safetensors(bytes_of(file), "shard");
  ASSERT_TRUE(tensors.ok()) << tensors.error().message;
  ASSERT_EQ(tensors->size(), 7u);
  std::vector<std::string> names;
  for (const StoredTensor& tensor : *tensors) names.push_back(tensor.name);
  EXPECT_THAT(names, ElementsAre("bytes", "eight", "empty", "flags", "matrix", "scalar", "wide"));
  const StoredTensor& matrix = (*tensors)[4];
  EXPECT_EQ(matrix.type, StoredType::bf16);
  EXPECT_THAT(matrix.shape, ElementsAre(2, 3));
  EXPECT_EQ(matrix.data.size(), 12u);
  EXPECT_EQ(matrix.data.data(), bytes_of(file).data() + file.size() - 32);
}

TEST(Safetensors, a_file_without_tensors_is_read) { EXPECT_EQ(refusal(file_with("{}", 0)), ""); }

TEST(Safetensors, truncated_files_are_refused_at_every_length) {
  const EditableTensors tensors{{"weight", {"F32", {2, 2}, std::vector<std::byte>(16)}}};
  const std::string whole = safetensors_text(tensors);
  ASSERT_EQ(refusal(whole), "");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THAT(refusal(whole.substr(0, size)), HasSubstr("shard: ")) << size;
  }
  EXPECT_THAT(refusal(whole.substr(0, 3)), HasSubstr("truncated"));
  EXPECT_THAT(refusal(whole.substr(0, 40)), HasSubstr("truncated"));
  EXPECT_THAT(refusal(whole.substr(0, whole.size() - 1)),
              HasSubstr("tensor weight: data_offsets: ends at byte 16 of 15"));
}

TEST(Safetensors, oversized_headers_are_refused_before_they_are_read) {
  for (const std::uint64_t length :
       {kLargestSafetensorsHeader + 1, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    std::string file = file_with("{}", 0);
    std::memcpy(file.data(), &length, sizeof(length));
    EXPECT_THAT(refusal(file), HasSubstr("shard: header length"));
    EXPECT_THAT(refusal(file), HasSubstr("at most 100000000"));
  }
}

struct Fault {
  const char* name;
  const char* tensors;  // within the header's braces; the file has 8 bytes of data
  const char* message;
};

const Fault kFaults[] = {
    {"hole_before", R"("t": {"dtype": "U8", "shape": [4], "data_offsets": [4, 8]})",
     "tensor t: data_offsets: begins at byte 4, leaving a hole from byte 0"},
    {"hole_between", R"("s": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
      "t": {"dtype": "U8", "shape": [4], "data_offsets": [4, 8]})",
     "tensor t: data_offsets: begins at byte 4, leaving a hole from byte 2"},
    {"overlap", R"("s": {"dtype": "U8", "shape": [6], "data_offsets": [0, 6]},
      "t": {"dtype": "U8", "shape": [4], "data_offsets": [4, 8]})",
     "tensor t: data_offsets: begins at byte 4, overlapping"},
    {"bytes_left_over", R"("t": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]})",
     "shard: 8 bytes of data; the header describes 4"},
    {"past_the_end", R"("t": {"dtype": "U8", "shape": [16], "data_offsets": [0, 16]})",
     "tensor t: data_offsets: ends at byte 16 of 8"},
    {"end_before_begin", R"("t": {"dtype": "U8", "shape": [4], "data_offsets": [8, 4]})",
     "tensor t: data_offsets: expected a begin and an end"},
    {"three_offsets", R"("t": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8, 8]})",
     "tensor t: data_offsets: expected a begin and an end"},
    {"negative_offset", R"("t": {"dtype": "U8", "shape": [8], "data_offsets": [-1, 7]})",
     "tensor t: data_offsets: expected integers"},
    {"fractional_offset", R"("t": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8.0]})",
     "tensor t: data_offsets: expected integers"},
    {"size_of_shape", R"("t": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]})",
     "tensor t: data_offsets: 8 bytes; F32 [3] takes 12"},
    {"shape_overflow",
     R"("t": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 8]})",
     "tensor t: shape: [4294967296, 4294967296] has more bytes"},
    // 2^62 * 4 bytes wrap around to 0.
    {"shape_wraps", R"("t": {"dtype": "F32", "shape": [4611686018427387904],
      "data_offsets": [0, 0]})",
     "tensor t: shape: [4611686018427387904] has more bytes"},
    {"shape_beyond_63_bits", R"("t": {"dtype": "U8", "shape": [0, 18446744073709551615],
      "data_offsets": [0, 0]})",
     "tensor t: shape: 18446744073709551615"},
    {"negative_extent", R"("t": {"dtype": "U8", "shape": [-8], "data_offsets": [0, 8]})",
     "tensor t: shape: expected integers"},
    {"text_extent", R"("t": {"dtype": "U8", "shape": ["8"], "data_offsets": [0, 8]})",
     "tensor t: shape: expected integers"},
    {"shape_not_list", R"("t": {"dtype": "U8", "shape": 8, "data_offsets": [0, 8]})",
     "tensor t: shape: expected a list"},
    {"many_dimensions", R"("t": {"dtype": "U8", "shape": [1, 1, 1, 1, 1, 1, 1, 1, 8],
      "data_offsets": [0, 8]})",
     "tensor t: shape: 9 dimensions"},
    {"unknown_type", R"("t": {"dtype": "F4", "shape": [8], "data_offsets": [0, 8]})",
     "tensor t: dtype: F4 is not accepted; expected F64, F32"},
    {"no_type", R"("t": {"shape": [8], "data_offsets": [0, 8]})",
     "tensor t: dtype: expected a string"},
    {"no_offsets", R"("t": {"dtype": "U8", "shape": [8]})", "tensor t: data_offsets: expected"},
    {"not_an_object", R"("t": [])", "tensor t: expected an object"},
    {"twice_side_by_side", R"("t": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]},
      "t": {"dtype": "U8", "shape": [4], "data_offsets": [4, 8]})",
     "tensor t: the name appears twice"},
    {"twice_in_one_place", R"("t": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]},
      "t": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]})",
     "tensor t: "},
    {"metadata_of_numbers", R"("__metadata__": {"a": 1})", "__metadata__.a: expected a string"},
    {"metadata_list", R"("__metadata__": [])", "__metadata__: expected an object"},
    {"corrupt_json", R"("t": {)", "shard: header: not a valid JSON object"},
    {"invalid_utf8", "\"\xff\": {}", "shard: header: not a valid JSON object"},
};

class FaultySafetensors : public testing::TestWithParam<Fault> {};

TEST_P(FaultySafetensors, is_refused_by_name) {
  const std::string header = fmt::format("{{{}}}", GetParam().tensors);
  EXPECT_THAT(refusal(file_with(header, 8)), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(Headers, FaultySafetensors, testing::ValuesIn(kFaults),
                         [](const auto& fault) { return std::string(fault.param.name); });

TEST(Safetensors, headers_that_are_no_object_or_nest_deeply_are_refused) {
  for (const std::string& header :
       {std::string(), std::string("[]"), std::string("null"), std::string(100'000, '['),
        "{\"t\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}"}) {
    EXPECT_THAT(refusal(file_with(header, 0)), HasSubstr("shard: "));
  }
}

TEST(Safetensors, files_that_cannot_be_mapped_are_refused_by_name) {
  const TestCheckpoint checkpoint("ratio1_float32_flat_tied");
  EXPECT_THAT(SafetensorsFile::open(checkpoint.path() / "absent.safetensors").error().message,
              HasSubstr("absent.safetensors"));
  EXPECT_THAT(SafetensorsFile::open(checkpoint.path()).error().message,
              HasSubstr("not a regular file"));
  checkpoint.write("none.safetensors", "");
  EXPECT_THAT(SafetensorsFile::open(checkpoint.path() / "none.safetensors").error().message,
              HasSubstr("none.safetensors: empty"));
}

TEST(Safetensors, tensors_stay_valid_when_the_file_is_moved) {
  const TestCheckpoint checkpoint("ratio1_float32_flat_tied");
  auto opened = SafetensorsFile::open(checkpoint.path() / "model.safetensors");
  ASSERT_TRUE(opened.ok());
  const StoredTensor* before = opened->find("model.norm.weight");
  ASSERT_NE(before, nullptr);
  const std::byte* data = before->data.data();
  const SafetensorsFile moved = std::move(*opened);
  EXPECT_EQ(moved.find("model.norm.weight")->data.data(), data);
  EXPECT_EQ(moved.find("model.norm"), nullptr);
  EXPECT_EQ(moved.find("zzz"), nullptr);
}

}  // namespace
}  // namespace replayssm
