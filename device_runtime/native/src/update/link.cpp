#include "update/link.h"

#include <algorithm>

#include "formats/utf8.h"
#include "update/draft.h"
#include "update/update_file.h"

namespace phonograd {
namespace {

constexpr const char* kResult = "result_sha256";
const std::string kOfResult = "result.";  // begins the keys of the resulting model's own metadata
constexpr size_t kMostDigits = 18;

}  // namespace

bool is_update(const Metadata& metadata) {
  const auto format = metadata.find("format");
  return format != metadata.end() && format->second == kUpdateFormat;
}

Link::Link(const std::string& path, size_t start) : file_(path, Status::update, start) {
  const auto refuse = [&path](const std::string& what) {
    throw Error(Status::update, path + ": " + what + "; fetch the whole model");
  };
  if (!is_update(file_.metadata())) refuse(std::string("not a link: metadata has no format=") + kUpdateFormat);
  const std::string version = text("version");
  if (version != kUpdateVersion) {
    refuse(std::string("update version ") + kUpdateVersion + " expected, found " + quoted(version.substr(0, 80)));
  }
  if (const std::string fault = checksum_fault(file_); !fault.empty()) refuse(fault);
  base_sha256_ = text("base_sha256");
  const std::string codec = text("codec");
  codec_ = codec == kRowsF32.name ? &kRowsF32 : codec == kTopRows.name ? &kTopRows : nullptr;
  seed_ = number("seed");
  number("round");
  if (number("tokens") == 0) refuse("0 tokens trained, expected at least 1");
  const auto steps = file_.metadata().find("steps");
  if (steps != file_.metadata().end() && steps->second != "1") refuse("metadata steps: 1 expected, or nothing");
  if (file_.metadata().count(kResult) == 0 || codec_ == nullptr) {
    refuse(std::string("a link expected, with metadata ") + kResult +
           " and codec rows-f32 or top-rows, found an update of codec " + quoted(codec.substr(0, 80)));
  }
  result_sha256_ = text(kResult);
}

const std::string& Link::text(const std::string& key) const {
  const auto found = file_.metadata().find(key);
  if (found != file_.metadata().end()) return found->second;
  throw Error(Status::update, file_.path() + ": metadata " + key + " expected, not found; fetch the whole model");
}

uint64_t Link::number(const std::string& key) const {
  const std::string& digits = text(key);
  if (!digits.empty() && digits.size() <= kMostDigits && digits.find_first_not_of("0123456789") == std::string::npos) {
    return std::stoull(digits);
  }
  throw Error(Status::update, file_.path() + ": metadata " + key + ": a whole number of at most " +
                                  std::to_string(kMostDigits) + " digits expected, found " +
                                  quoted(digits.substr(0, 80)) + "; fetch the whole model");
}

Metadata Link::result_metadata() const {
  Metadata result;
  for (const auto& [key, value] : file_.metadata()) {
    if (key.compare(0, kOfResult.size(), kOfResult) == 0) result[key.substr(kOfResult.size())] = value;
  }
  return result;
}

void Link::check_parts(const std::vector<TensorSpec>& expected) const {
  const auto fail = [this](const std::string& what) { throw Error(Status::update, file_.path() + ": tensor " + what); };
  std::set<std::string> names = {kChecksum};
  for (const TensorSpec& part : expected) {
    const std::string wanted = describe(part.name, part.dtype, part.shape) + " expected, ";
    const TensorSpec* found = file_.find(part.name);
    if (found == nullptr) fail(wanted + "not found");
    if (found->dtype != part.dtype || found->shape != part.shape) {
      fail(wanted + "found " + describe(found->name, found->dtype, found->shape));
    }
    names.insert(part.name);
  }
  for (const TensorSpec& found : file_.specs()) {
    if (names.count(found.name) == 0) fail(found.name + " is not part of the model; fetch the whole model");
  }
}

void Link::apply(const std::set<std::string>& frozen, Draft& draft) const {
  std::vector<TensorSpec> expected;
  const auto trained = [&](const TensorSpec& tensor) { return frozen.count(tensor.name) == 0; };
  for (const TensorSpec& tensor : draft.specs()) {
    if (trained(tensor)) codec_->expect(file_, tensor, expected);
  }
  check_parts(expected);
  for (const TensorSpec& tensor : draft.specs()) {
    if (trained(tensor)) codec_->apply(*this, tensor, draft);
  }
}

void for_each_link(const std::string& path, const std::function<void(const Link&)>& each) {
  size_t start = 0, size = 0;
  do {  // an empty file is no link
    const Link link(path, start);
    each(link);
    start = link.file().end();
    size = link.file().file_bytes();
  } while (start < size);
}

}  // namespace phonograd
