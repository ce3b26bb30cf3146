#include "update/update_reader.h"

#include "formats/utf8.h"

namespace phonograd {
namespace {

constexpr std::string_view kOfResult = "result.";  // begins the keys of the resulting model's own metadata
constexpr size_t kMostDigits = 18;
constexpr size_t kShown = 80;  // characters of a value in a message

}  // namespace

bool is_update(const Metadata& metadata) {
  const auto format = metadata.find("format");
  return format != metadata.end() && format->second == kUpdateFormat;
}

UpdateReader::UpdateReader(const std::string& path, std::optional<size_t> start) : file_(path, Status::update, start) {
  if (!is_update(file_.metadata())) fail(std::string("not an update: metadata has no format=") + kUpdateFormat);
  const std::string& version = text("version");
  if (version != kUpdateVersion) {
    fail(std::string("update version ") + kUpdateVersion + " expected, found " + quote_text(version.substr(0, kShown)));
  }
  if (const std::string fault = checksum_fault(file_); !fault.empty()) fail(fault);
  info_.base_sha256 = text("base_sha256");
  info_.round = number("round");
  info_.tokens = number("tokens");
  info_.seed = number("seed");
  info_.codec = text("codec");
  if (info_.tokens == 0) fail("0 tokens trained, expected at least 1");
  const auto steps = file_.metadata().find("steps");
  info_.one_step = steps != file_.metadata().end();
  if (info_.one_step && steps->second != "1") fail("metadata steps: 1 expected, or nothing");
  try {
    codec_ = &codec_named(info_.codec);
  } catch (const Error& error) {
    throw Error(Status::update, path + ": " + error.what());
  }
}

void UpdateReader::fail(const std::string& what) const {
  throw Error(Status::update,
              file_.path() + ": " + what +
                  (file_.metadata().count(kResult) != 0 ? "; fetch the whole model" : "; send it again"));
}

bool UpdateReader::is_link() const {
  return file_.metadata().count(kResult) != 0 && (codec_ == &kRowsF32 || codec_ == &kTopRows);
}

const std::string& UpdateReader::text(const std::string& key) const {
  const auto found = file_.metadata().find(key);
  if (found == file_.metadata().end()) fail("metadata " + key + " expected, not found");
  if (found->second.find('\0') != std::string::npos) fail("metadata " + key + ": has a NUL byte");
  return found->second;
}

uint64_t UpdateReader::number(const std::string& key) const {
  const std::string& digits = text(key);
  if (digits.empty() || digits.size() > kMostDigits || digits.find_first_not_of("0123456789") != std::string::npos) {
    fail("metadata " + key + ": a whole number of at most " + std::to_string(kMostDigits) + " digits expected, found " +
         quote_text(digits.substr(0, kShown)));
  }
  return std::stoull(digits);
}

const std::string& UpdateReader::result_sha256() const {
  if (is_link()) return text(kResult);
  throw Error(Status::update, file_.path() + ": a link expected, with metadata " + kResult +
                                  " and codec rows-f32 or top-rows, found an update of codec " + info_.codec +
                                  "; fetch the whole model");
}

Metadata UpdateReader::result_metadata() const {
  Metadata result;
  for (const auto& [key, value] : file_.metadata()) {
    if (key.compare(0, kOfResult.size(), kOfResult) == 0) result[key.substr(kOfResult.size())] = value;
  }
  return result;
}

std::vector<TensorSpec> UpdateReader::parts_of(const TensorSpec& tensor) const {
  std::vector<TensorSpec> expected;
  codec_->expect(*this, tensor, expected);
  for (const TensorSpec& part : expected) {
    const std::string wanted = "tensor " + describe(part.name, part.dtype, part.shape) + " expected, ";
    const TensorSpec* found = file_.find(part.name);
    if (found == nullptr) fail(wanted + "not found");
    if (found->dtype != part.dtype || found->shape != part.shape) {
      fail(wanted + "found " + describe(found->name, found->dtype, found->shape));
    }
  }
  return expected;
}

void UpdateReader::check_parts(const std::vector<TensorSpec>& model, const std::set<std::string>& frozen) const {
  std::set<std::string> names = {kChecksum};
  for (const TensorSpec& tensor : model) {
    if (frozen.count(tensor.name) != 0) continue;
    for (const TensorSpec& part : parts_of(tensor)) names.insert(part.name);
  }
  for (const TensorSpec& found : file_.specs()) {
    if (names.count(found.name) == 0) fail("tensor " + found.name + " is not part of the model");
  }
}

void for_each_link(const std::string& path, const std::function<void(const UpdateReader&)>& each) {
  size_t start = 0, size = 0;
  do {  // an empty file is no link
    const UpdateReader link(path, start);
    link.result_sha256();
    each(link);
    start = link.file().end();
    size = link.file().file_bytes();
  } while (start < size);
}

Metadata metadata_of(const UpdateInfo& info) {
  Metadata entries = {{"format", kUpdateFormat},
                      {"version", kUpdateVersion},
                      {"base_sha256", info.base_sha256},
                      {"round", std::to_string(info.round)},
                      {"tokens", std::to_string(info.tokens)},
                      {"codec", info.codec},
                      {"seed", std::to_string(info.seed)}};
  if (info.one_step) entries["steps"] = "1";
  return entries;
}

Metadata link_metadata(const UpdateInfo& info, const std::string& result_sha256, const Metadata& result) {
  Metadata entries = metadata_of(info);
  entries[UpdateReader::kResult] = result_sha256;
  for (const auto& [key, value] : result) entries[std::string(kOfResult) + key] = value;
  return entries;
}

}  // namespace phonograd
