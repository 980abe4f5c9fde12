#include "model/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>

#include <algorithm>
#include <array>

namespace replayssm {
namespace {

namespace dom = simdjson::dom;

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kLongestShownName = 120;
constexpr std::size_t kMostDimensions = 8;

struct TypeEntry {
  StoredType type;
  std::string_view name;
  std::size_t size;
  std::optional<DType> computed;
};

constexpr std::array kTypes{
    TypeEntry{StoredType::f64, "F64", 8, DType::f64},
    TypeEntry{StoredType::f32, "F32", 4, DType::f32},
    TypeEntry{StoredType::f16, "F16", 2, DType::f16},
    TypeEntry{StoredType::bf16, "BF16", 2, DType::bf16},
    TypeEntry{StoredType::f8_e4m3, "F8_E4M3", 1, std::nullopt},
    TypeEntry{StoredType::f8_e5m2, "F8_E5M2", 1, std::nullopt},
    TypeEntry{StoredType::i64, "I64", 8, std::nullopt},
    TypeEntry{StoredType::i32, "I32", 4, std::nullopt},
    TypeEntry{StoredType::i16, "I16", 2, std::nullopt},
    TypeEntry{StoredType::i8, "I8", 1, std::nullopt},
    TypeEntry{StoredType::u8, "U8", 1, std::nullopt},
    TypeEntry{StoredType::boolean, "BOOL", 1, std::nullopt},
};

const TypeEntry& entry_of(StoredType type) {
  return *std::find_if(kTypes.begin(), kTypes.end(),
                       [&](const TypeEntry& entry) { return entry.type == type; });
}

std::string accepted_types() {
  std::string text;
  for (const TypeEntry& entry : kTypes) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", entry.name);
  }
  return text;
}

// The byte range of one tensor within the data, to be checked against its neighbours.
struct Extent {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::size_t tensor = 0;
};

class HeaderReader {
 public:
  HeaderReader(std::span<const std::byte> file, std::string_view label)
      : file_(file), label_(label) {}

  Result<std::vector<StoredTensor>> read() {
    auto header = header_bytes();
    if (!header) return header.error();
    data_ = file_.subspan(kLengthBytes + header->size());

    dom::parser parser;
    dom::object root;
    if (const auto error = parser.parse(header->data(), header->size()).get_object().get(root)) {
      return Error{fmt::format("{}: header: not a valid JSON object: {}", label_,
                               simdjson::error_message(error))};
    }
    for (const dom::key_value_pair field : root) {
      if (field.key == "__metadata__") {
        REPLAYSSM_TRY(check_metadata(field.value));
      } else {
        REPLAYSSM_TRY(read_tensor(field.key, field.value));
      }
    }
    REPLAYSSM_TRY(check_extents());
    REPLAYSSM_TRY(sort_by_name());
    return std::move(tensors_);
  }

 private:
  Error fault(std::string_view tensor, std::string_view what) const {
    return Error{
        fmt::format("{}: tensor {}: {}", label_, tensor.substr(0, kLongestShownName), what)};
  }

  Result<std::string_view> header_bytes() const {
    if (file_.size() < kLengthBytes) {
      return Error{fmt::format("{}: truncated: {} bytes, fewer than the {} of the header's length",
                               label_, file_.size(), kLengthBytes)};
    }
    std::uint64_t length = 0;
    for (std::size_t i = kLengthBytes; i-- > 0;) {
      length = length << 8 | std::to_integer<std::uint64_t>(file_[i]);
    }
    if (length > kLargestSafetensorsHeader) {
      return refuse(fmt::format("{}: header length", label_), length,
                    fmt::format("at most {}", kLargestSafetensorsHeader));
    }
    if (length > file_.size() - kLengthBytes) {
      return Error{fmt::format("{}: truncated: header of {} bytes in a file of {}", label_, length,
                               file_.size())};
    }
    return std::string_view(reinterpret_cast<const char*>(file_.data()) + kLengthBytes,
                            static_cast<std::size_t>(length));
  }

  Status check_metadata(dom::element value) const {
    dom::object metadata;
    if (value.get_object().get(metadata) != simdjson::SUCCESS) {
      return Error{fmt::format("{}: __metadata__: expected an object of strings", label_)};
    }
    for (const dom::key_value_pair field : metadata) {
      if (!field.value.is_string()) {
        return Error{fmt::format("{}: __metadata__.{}: expected a string", label_,
                                 field.key.substr(0, kLongestShownName))};
      }
    }
    return {};
  }

  // The elements of a list of non-negative integers.
  Status read_sizes(std::string_view tensor, dom::object about, std::string_view key,
                    std::vector<std::uint64_t>& out) const {
    dom::array list;
    if (about[key].get_array().get(list) != simdjson::SUCCESS) {
      return fault(tensor, fmt::format("{}: expected a list of integers", key));
    }
    for (const dom::element element : list) {
      std::uint64_t size = 0;
      if (element.get_uint64().get(size) != simdjson::SUCCESS) {
        return fault(tensor, fmt::format("{}: expected integers that are not negative", key));
      }
      out.push_back(size);
    }
    return {};
  }

  Status read_tensor(std::string_view name, dom::element value) {
    dom::object about;
    if (value.get_object().get(about) != simdjson::SUCCESS) {
      return fault(name, "expected an object with dtype, shape and data_offsets");
    }
    std::string_view type_name;
    if (about["dtype"].get_string().get(type_name) != simdjson::SUCCESS) {
      return fault(name, "dtype: expected a string");
    }
    const auto* type = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeEntry& entry) {
      return entry.name == type_name;
    });
    if (type == kTypes.end()) {
      return fault(
          name, refuse("dtype", type_name.substr(0, kLongestShownName), accepted_types()).message);
    }
    std::vector<std::uint64_t> shape;
    std::vector<std::uint64_t> offsets;
    REPLAYSSM_TRY(read_sizes(name, about, "shape", shape));
    REPLAYSSM_TRY(read_sizes(name, about, "data_offsets", offsets));
    if (shape.size() > kMostDimensions) {
      return fault(name, fmt::format("shape: {} dimensions; expected at most {}", shape.size(),
                                     kMostDimensions));
    }
    if (offsets.size() != 2 || offsets[0] > offsets[1]) {
      return fault(name, "data_offsets: expected a begin and an end that is not before it");
    }

    std::uint64_t bytes = type->size;
    for (const std::uint64_t extent : shape) {
      if (__builtin_mul_overflow(bytes, extent, &bytes)) {
        return fault(name, fmt::format("shape: [{}] has more bytes than 64 bits can count",
                                       fmt::join(shape, ", ")));
      }
    }
    const std::uint64_t stored = offsets[1] - offsets[0];
    if (offsets[1] > data_.size()) {
      return fault(name, fmt::format("data_offsets: ends at byte {} of {}: truncated file or "
                                     "corrupt header",
                                     offsets[1], data_.size()));
    }
    if (stored != bytes) {
      return fault(name, fmt::format("data_offsets: {} bytes; {} [{}] takes {}", stored, type->name,
                                     fmt::join(shape, ", "), bytes));
    }

    StoredTensor tensor;
    tensor.name = name;
    tensor.type = type->type;
    // A shape with a zero may hold an extent of any size beside it; such a size is no tensor of
    // ours.
    for (const std::uint64_t extent : shape) {
      if (extent > static_cast<std::uint64_t>(INT64_MAX)) {
        return fault(name, fmt::format("shape: {} is not accepted", extent));
      }
      tensor.shape.push_back(static_cast<std::int64_t>(extent));
    }
    tensor.data = data_.subspan(offsets[0], stored);
    extents_.push_back({offsets[0], offsets[1], tensors_.size()});
    tensors_.push_back(std::move(tensor));
    return {};
  }

  // Every byte of the data belongs to exactly one tensor.
  Status check_extents() {
    std::sort(extents_.begin(), extents_.end(), [](const Extent& a, const Extent& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
    });
    std::uint64_t end = 0;
    for (const Extent& extent : extents_) {
      if (extent.begin != end) {
        return fault(
            tensors_[extent.tensor].name,
            fmt::format("data_offsets: begins at byte {}, {} byte {}", extent.begin,
                        extent.begin < end ? "overlapping the tensor before it, which ends "
                                             "at"
                                           : "leaving a hole from",
                        end));
      }
      end = extent.end;
    }
    if (end != data_.size()) {
      return Error{
          fmt::format("{}: {} bytes of data; the header describes {}", label_, data_.size(), end)};
    }
    return {};
  }

  Status sort_by_name() {
    std::sort(tensors_.begin(), tensors_.end(),
              [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
    const auto twin = std::adjacent_find(
        tensors_.begin(), tensors_.end(),
        [](const StoredTensor& a, const StoredTensor& b) { return a.name == b.name; });
    if (twin != tensors_.end()) return fault(twin->name, "the name appears twice");
    return {};
  }

  std::span<const std::byte> file_;
  std::string_view label_;
  std::span<const std::byte> data_;
  std::vector<StoredTensor> tensors_;
  std::vector<Extent> extents_;
};

}  // namespace

std::string_view name_of(StoredType type) { return entry_of(type).name; }
std::size_t size_of(StoredType type) { return entry_of(type).size; }
std::optional<DType> dtype_of(StoredType type) { return entry_of(type).computed; }

std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Result<std::vector<StoredTensor>> parse_safetensors(std::span<const std::byte> file,
                                                    std::string_view label) {
  return HeaderReader(file, label).read();
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  auto file = MappedFile::open(path);
  if (!file) return file.error();
  std::string label = path.filename().string();
  auto tensors = parse_safetensors(file->bytes(), label);
  if (!tensors) return tensors.error();
  return SafetensorsFile(std::move(*file), std::move(label), std::move(*tensors));
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const StoredTensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

}  // namespace replayssm
