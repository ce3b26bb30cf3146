#include "formats/tensor_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/crc32.h"
#include "base/files.h"
#include "formats/json.h"
#include "formats/sha256.h"

namespace phonograd {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensor files are mapped, not converted");

// The largest header of ours is about 4 KB; 1 MiB leaves room for models of a thousand tensors.
constexpr uint64_t kHeaderCapBytes = 1 << 20;

constexpr size_t kPieceBytes = size_t{1} << 18;  // in memory at a time
constexpr size_t kMaxNameBytes = 200;
constexpr int64_t kSizeLimit = int64_t{1} << 62;

constexpr std::pair<std::string_view, uint64_t> kDtypes[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"U16", 2}, {"I16", 2}, {"F16", 2}, {"BF16", 2},
    {"U32", 4},  {"I32", 4}, {"F32", 4}, {"U64", 8}, {"I64", 8}, {"F64", 8},
};

// Bytes of an element; 0 for a dtype the format lacks.
uint64_t element_bytes(std::string_view dtype) {
  for (const auto& [name, bytes] : kDtypes) {
    if (name == dtype) return bytes;
  }
  return 0;
}

// Product of shape times `unit`; false if it reaches 2^63, sizes of 0 left out (they make the product 0).
bool multiply(const std::vector<int64_t>& shape, uint64_t unit, uint64_t* product) {
  bool empty = false;
  for (const int64_t size : shape) {
    if (size == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(unit, static_cast<uint64_t>(size), &unit)) {
      return false;
    }
  }
  *product = empty ? 0 : unit;
  return unit < uint64_t{1} << 63;
}

bool is_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes || name[0] == '.' || name[0] == '-') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-';
  });
}

// All sizes of a JSON list into `sizes`; false if it is no list of whole numbers in [0, 2^62).
bool read_sizes(const json::Value& value, size_t most, std::vector<int64_t>* sizes) {
  const auto* list = value.as<json::Array>();
  if (list == nullptr || list->size() > most) return false;
  for (const json::Value& element : *list) {
    const auto* size = element.as<int64_t>();
    if (size == nullptr || *size < 0 || *size >= kSizeLimit) return false;
    sizes->push_back(*size);
  }
  return true;
}

// Reads the JSON header of one file.
class Header {
 public:
  Header(const std::string& path, Status status) : path_(path), status_(status) {}

  // `raw`: the header's text; `data_bytes` come after it, those of the tensors and, if `followed`, of other files.
  // Offsets come out relative to the data.
  void read(std::string_view raw, uint64_t data_bytes, bool followed) {
    const json::Value header = json::parse(raw, status_, path_ + ": header");
    const auto* entries = header.as<json::Object>();
    if (entries == nullptr) fail("header is " + header.text() + ", expected an object");
    for (const json::Member& entry : *entries) {
      if (entry.key == "__metadata__") {
        read_metadata(entry.value);
      } else {
        read_entry(entry.key, entry.value);
      }
    }
    check_layout(data_bytes, followed);
  }

  std::map<std::string, std::string> metadata;
  std::vector<TensorSpec> specs;
  uint64_t end = 0;  // of all tensors, and their bytes

 private:
  [[noreturn]] void fail(const std::string& what) const { throw Error(status_, path_ + ": " + what); }

  void read_metadata(const json::Value& value) {
    const char* expected = "__metadata__ must map names to strings";
    const auto* pairs = value.as<json::Object>();
    if (pairs == nullptr) fail(expected);
    for (const json::Member& pair : *pairs) {
      const auto* text = pair.value.as<std::string>();
      if (text == nullptr) fail(expected);
      metadata[pair.key] = *text;
    }
  }

  void read_entry(const std::string& name, const json::Value& entry) {
    if (!is_name(name)) {
      fail("tensor name " + json::quote(name.substr(0, 80)) + " is not letters, digits, '_', '.', '-' (200 at most)");
    }
    const json::Value* dtype = entry.find("dtype");
    const json::Value* shape = entry.find("shape");
    const json::Value* offsets = entry.find("data_offsets");
    if (dtype == nullptr || shape == nullptr || offsets == nullptr || entry.as<json::Object>()->size() != 3) {
      fail("tensor " + name + ": expected dtype, shape and data_offsets");
    }
    TensorSpec spec;
    spec.name = name;
    const auto* dtype_name = dtype->as<std::string>();
    if (dtype_name == nullptr || element_bytes(*dtype_name) == 0) {
      fail("tensor " + name + ": unknown dtype " + dtype->text());
    }
    spec.dtype = *dtype_name;
    if (!read_sizes(*shape, kMaxDimensions, &spec.shape)) {
      fail("tensor " + name + ": shape " + shape->text() + " is not a list of up to " + std::to_string(kMaxDimensions) +
           " sizes");
    }
    std::vector<int64_t> range;
    if (!read_sizes(*offsets, 2, &range) || range.size() != 2) {
      fail("tensor " + name + ": data_offsets " + offsets->text() + " is not a pair of sizes");
    }
    uint64_t bytes = 0;
    if (!multiply(spec.shape, element_bytes(spec.dtype), &bytes)) {
      fail("tensor " + describe(spec.name, spec.dtype, spec.shape) +
           ": its sizes make 2^63 bytes or more, those of 0 left out");
    }
    if (range[1] - range[0] != static_cast<int64_t>(bytes)) {
      fail("tensor " + describe(spec.name, spec.dtype, spec.shape) + ": " + std::to_string(bytes) +
           " bytes expected, data_offsets hold " + std::to_string(range[1] - range[0]));
    }
    spec.offset = static_cast<size_t>(range[0]);
    spec.bytes = static_cast<size_t>(bytes);
    specs.push_back(std::move(spec));
  }

  void check_layout(uint64_t data_bytes, bool followed) {
    std::sort(specs.begin(), specs.end(), [](const TensorSpec& a, const TensorSpec& b) {
      return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
    });
    for (const TensorSpec& spec : specs) {
      if (spec.offset != end) {
        fail("tensor " + spec.name + " starts at " + std::to_string(spec.offset) + ", expected " + std::to_string(end) +
             " (a gap or an overlap)");
      }
      end += spec.bytes;  // below 2^63: an offset, which is below 2^62, and bytes, which end below 2^62
    }
    if (end > data_bytes || (end < data_bytes && !followed)) {
      fail(std::to_string(data_bytes) + " bytes of data, the header describes " + std::to_string(end) +
           "; the file is " + (end > data_bytes ? "truncated" : "followed by bytes that belong to no tensor"));
    }
  }

  const std::string& path_;
  Status status_;
};

}  // namespace

std::string describe(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape) {
  std::string sizes;
  for (const int64_t size : shape) sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
  return name + " " + dtype + "[" + sizes + "]";
}

size_t TensorSpec::elements() const {
  uint64_t product = 0;
  multiply(shape, 1, &product);  // fits: the constructor of TensorFile held shape against bytes
  return static_cast<size_t>(product);
}

TensorFile::TensorFile(const std::string& path, Status status, std::optional<size_t> start, const std::string& name)
    : path_(name.empty() ? path : name), status_(status) {
  const auto fail = [&](const std::string& what) -> void { throw Error(status_, path_ + ": " + what); };
  descriptor_ = open_to_read(path, status);
  try {
    struct stat about{};
    if (fstat(descriptor_, &about) != 0) fail("cannot be read: " + reason_of(errno));
    size_ = static_cast<size_t>(about.st_size);
    const size_t begin = begin_ = start.value_or(0), left = size_ - std::min(size_, begin);
    if (left < 8) {
      fail(std::to_string(left) + " bytes, a tensor file has at least 8; it is truncated or not a tensor file");
    }
    written_ = written_at(about);
    map_ = mapped(false);
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--) length = length << 8 | map_.data()[begin + static_cast<size_t>(i)];
    if (length > kHeaderCapBytes) {
      fail("header of " + std::to_string(length) + " bytes, at most " + std::to_string(kHeaderCapBytes) +
           " accepted; not a phonograd tensor file");
    }
    if (8 + length > left) {
      fail("header of " + std::to_string(length) + " bytes in a file of " + std::to_string(left) +
           "; it is truncated, fetch it again");
    }
    const size_t data_start = begin + static_cast<size_t>(8 + length);
    Header header(path_, status_);
    header.read(std::string_view(reinterpret_cast<const char*>(map_.data() + begin + 8), static_cast<size_t>(length)),
                size_ - data_start, start.has_value());
    metadata_ = std::move(header.metadata);
    specs_ = std::move(header.specs);
    end_ = data_start + static_cast<size_t>(header.end);
    for (TensorSpec& spec : specs_) spec.offset += data_start;
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

TensorFile::~TensorFile() {
  close(descriptor_);
}

Mapping TensorFile::mapped(bool writable) const {
  try {
    return Mapping(descriptor_, size_, writable);
  } catch (const std::system_error& error) {
    const int reason = error.code().value();
    const std::string what = path_ + ": cannot be mapped: " + reason_of(reason);
    if (reason != ENOMEM) throw Error(status_, what + "; copy it to another place");
    throw Error(Status::out_of_memory, what + "; close other apps or use a smaller model");
  }
}

void TensorFile::read(size_t at, size_t bytes, void* out) const {
  char* next = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t count = pread(descriptor_, next, bytes, static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Error(status_, path_ + ": cannot be read: " + reason_of(errno));
    if (count == 0) {
      throw Error(status_, path_ + ": ends at byte " + std::to_string(at) + ", " + std::to_string(bytes) +
                               " bytes short; fetch it again");
    }
    next += count, at += static_cast<size_t>(count), bytes -= static_cast<size_t>(count);
  }
}

void TensorFile::copy(size_t at, size_t bytes, OutputFile& to) const {
  std::vector<char> piece(std::min(kPieceBytes, bytes));
  for (const size_t end = at + bytes; at < end; at += piece.size()) {
    const size_t count = std::min(piece.size(), end - at);
    read(at, count, piece.data());
    to.write(piece.data(), count);
  }
}

std::string TensorFile::sha256() const {
  return sha256_of_descriptor(descriptor_, path_, status_);
}

void TensorFile::require_unchanged() const {
  struct stat now{};
  const bool known = fstat(descriptor_, &now) == 0;
  const bool same = known && static_cast<size_t>(now.st_size) == size_ && written_at(now).tv_sec == written_.tv_sec &&
                    written_at(now).tv_nsec == written_.tv_nsec;
  if (same && !map_.lost()) return;
  throw Error(status_, path_ + (same ? ": part of it can't be read" : ": was changed while it was in use") +
                           "; fetch it again and restart");
}

const TensorSpec* TensorFile::find(const std::string& name) const {
  for (const TensorSpec& spec : specs_) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

const TensorSpec& TensorFile::at(const std::string& name) const {
  if (const TensorSpec* spec = find(name)) return *spec;
  std::string found;
  for (const TensorSpec& spec : specs_) {
    found += (found.empty() ? "" : ", ") + spec.name;
    if (found.size() > 400) {
      found += ", ...";
      break;
    }
  }
  throw Error(status_, path_ + ": tensor " + name + " expected, found " + (found.empty() ? "none" : found));
}

void require_aligned(const TensorFile& file) {
  for (const TensorSpec& spec : file.specs()) {
    if (spec.offset % sizeof(float) == 0) continue;
    throw Error(Status::weights, file.path() + ": tensor " + spec.name + " begins at byte " +
                                     std::to_string(spec.offset) +
                                     ", expected a multiple of 4; write it again with phonograd or safetensors");
  }
}

void TensorFile::release_pages() const {
  madvise(map_.data(), size_, MADV_DONTNEED);
}

void TensorFile::release_pages(const TensorSpec& spec) const {
  const size_t before = spec.offset % static_cast<size_t>(sysconf(_SC_PAGESIZE));
  madvise(map_.data() + spec.offset - before, before + spec.bytes, MADV_DONTNEED);
}

Mapping TensorFile::map_copy_on_write() const {
  return mapped(true);
}

std::string tensor_file_header(std::vector<TensorSpec>& tensors, const std::map<std::string, std::string>& metadata) {
  // Python's json.dumps with separators=(",", ":").
  std::string text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      if (text.back() != '{') text += ',';
      text += json::quote(key) + ":" + json::quote(value);
    }
    text += '}';
  }
  uint64_t end = 0;
  for (TensorSpec& tensor : tensors) {
    uint64_t bytes = 0;
    const uint64_t unit = element_bytes(tensor.dtype);
    const bool sized = std::all_of(tensor.shape.begin(), tensor.shape.end(), [](int64_t size) { return size >= 0; });
    if (unit == 0 || !sized || !multiply(tensor.shape, unit, &bytes)) {
      throw Error(Status::bug, "tensor " + tensor.name + ": its dtype or shape has no place in a tensor file");
    }
    std::string shape;
    for (const int64_t size : tensor.shape) shape += (shape.empty() ? "" : ",") + std::to_string(size);
    if (text.size() > 1) text += ',';
    text += json::quote(tensor.name) + ":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[" + shape +
            "],\"data_offsets\":[" + std::to_string(end) + "," + std::to_string(end + bytes) + "]}";
    tensor.offset = static_cast<size_t>(end);
    tensor.bytes = static_cast<size_t>(bytes);
    end += bytes;
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string header(8, '\0');
  for (size_t i = 0; i < 8; i++) header[i] = static_cast<char>(uint64_t{text.size()} >> 8 * i);
  header += text;
  for (TensorSpec& tensor : tensors) tensor.offset += header.size();
  return header;
}

namespace {

std::vector<TensorSpec> specs_of(const std::vector<TensorOut>& tensors, bool checksum) {
  std::vector<TensorSpec> specs;
  for (const TensorOut& tensor : tensors) specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  if (checksum) specs.push_back({kChecksum, "U32", {1}});
  return specs;
}

size_t file_bytes(const std::string& header, const std::vector<TensorSpec>& tensors) {
  return tensors.empty() ? header.size() : tensors.back().offset + tensors.back().bytes;
}

}  // namespace

size_t tensor_file_bytes(const std::vector<TensorOut>& tensors, const std::map<std::string, std::string>& metadata,
                         bool checksum) {
  std::vector<TensorSpec> specs = specs_of(tensors, checksum);
  const std::string header = tensor_file_header(specs, metadata);
  return file_bytes(header, specs);
}

size_t stream_tensor_file(OutputFile& file, std::vector<TensorSpec> tensors,
                          const std::map<std::string, std::string>& metadata, bool checksum,
                          const std::function<void(const TensorSpec&, const Sink&)>& produce) {
  if (checksum) tensors.push_back({kChecksum, "U32", {1}});
  const std::string header = tensor_file_header(tensors, metadata);
  uint32_t sum = 0;
  const Sink sink = [&](const void* data, size_t bytes) {
    if (checksum) sum = crc32(sum, data, bytes);
    file.write(data, bytes);
  };
  sink(header.data(), header.size());
  for (size_t i = 0; i + checksum < tensors.size(); i++) produce(tensors[i], sink);
  const uint32_t whole = sum;
  if (checksum) sink(&whole, sizeof whole);
  return file_bytes(header, tensors);
}

size_t write_tensor_file(OutputFile& file, const std::vector<TensorOut>& tensors,
                         const std::map<std::string, std::string>& metadata, const std::function<void()>& check,
                         bool checksum) {
  size_t next = 0;
  const auto produce = [&](const TensorSpec& tensor, const Sink& sink) { sink(tensors[next++].data, tensor.bytes); };
  const size_t bytes = stream_tensor_file(file, specs_of(tensors, false), metadata, checksum, produce);
  if (check) check();
  file.commit();
  return bytes;
}

std::string checksum_fault(const TensorFile& file) {
  const TensorSpec* last = file.specs().empty() ? nullptr : &file.specs().back();
  if (last == nullptr || last->name != kChecksum || last->dtype != "U32" || last->shape != std::vector<int64_t>{1}) {
    return "damaged: its last tensor is not checksum U32[1]";
  }
  std::vector<char> piece(kPieceBytes);
  uint32_t found = 0, stored = 0;
  for (size_t at = file.begin(); at < last->offset; at += piece.size()) {
    const size_t bytes = std::min(piece.size(), last->offset - at);
    file.read(at, bytes, piece.data());
    found = crc32(found, piece.data(), bytes);
  }
  file.read(last->offset, sizeof stored, &stored);
  if (found == stored) return "";
  char fault[64];
  std::snprintf(fault, sizeof fault, "damaged: checksum %08x expected, its bytes have %08x", stored, found);
  return fault;
}

}  // namespace phonograd
