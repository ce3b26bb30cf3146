#include "update/pull.h"

#include <sys/stat.h>

#include <vector>

#include "base/files.h"
#include "base/places.h"
#include "formats/frozen.h"
#include "formats/sha256.h"
#include "formats/tensor_file.h"
#include "formats/utf8.h"
#include "update/draft.h"
#include "update/update_reader.h"

namespace phonograd {
namespace {

// Throws Error(`status`) unless the hashes are the same. `what`: of which model.
void require_model(Status status, const std::string& path, const char* what, const std::string& expected,
                   const std::string& found) {
  if (found == expected) return;
  const auto shown = [](const std::string& hash) {
    return is_sha256(hash) ? hash.substr(0, 12) + "…" : quote_text(hash.substr(0, 12));
  };
  throw Error(status, path + ": " + what + " model " + shown(expected) + " expected, found " + shown(found) +
                          "; fetch the whole model");
}

// The metadata of the last link's model, once each link is found to begin where the one before ends.
Metadata checked_chain(const PullSettings& settings, const std::string& local) {
  std::string expected = local;
  Metadata metadata;
  for_each_link(settings.fetched, [&](const UpdateReader& link) {
    require_model(Status::update, settings.fetched, "a link from", expected, link.info().base_sha256);
    expected = link.result_sha256();
    metadata = link.result_metadata();
  });
  require_model(Status::update, settings.fetched, "links to", settings.sha256, expected);
  return metadata;
}

bool same_file(const std::string& one, const std::string& other) {
  struct stat about{}, others{};
  return stat(one.c_str(), &about) == 0 && stat(other.c_str(), &others) == 0 && about.st_dev == others.st_dev &&
         about.st_ino == others.st_ino;
}

std::string hash_of(const AtomicFile& file, const PullSettings& settings) {
  return sha256_of_descriptor(file.descriptor(), settings.out, Status::storage);
}

std::optional<Pulled> copy_model(const PullSettings& settings, const std::string& whole, const Stop& stop) {
  const TensorFile model(whole);
  AtomicFile file(settings.out);
  model.copy(0, model.file_bytes(), file);
  if (stop()) return std::nullopt;
  require_model(Status::weights, whole, "the", settings.sha256, hash_of(file, settings));
  if (stop()) return std::nullopt;
  file.commit();
  return Pulled{model.file_bytes(), 0};
}

std::optional<Pulled> apply_link(const PullSettings& settings, const TensorFile& base, const Metadata& metadata,
                                 const Stop& stop) {
  AtomicFile file(settings.out);
  Draft draft(base, metadata, file);
  base.require_unchanged();
  const std::set<std::string> frozen = frozen_in(settings.fetched, metadata, draft.specs());
  bool stopped = stop();
  int64_t links = 0;
  for_each_link(settings.fetched, [&](const UpdateReader& link) {
    if (stopped) return;
    draft.apply(link, frozen);
    stopped = stop();
    ++links;
  });
  if (stopped) return std::nullopt;
  require_model(Status::update, settings.fetched, "links to", settings.sha256, hash_of(file, settings));
  if (stop()) return std::nullopt;
  file.commit();
  return Pulled{draft.bytes(), links};
}

}  // namespace

std::optional<Pulled> pull(const PullSettings& settings, const Stop& stop) {
  if (!is_sha256(settings.sha256)) {
    throw Error(Status::usage, "`sha256` " + quote_text(settings.sha256.substr(0, 80)) +
                                   ": 64 lower-case hexadecimal digits expected, the hash of the model asked for");
  }
  require_outputs({settings.out}, {settings.fetched});
  remove_partials(settings.out);
  const Status damaged = settings.base.empty() ? Status::weights : Status::update;  // links are asked for from a base
  if (!is_update(TensorFile(settings.fetched, damaged, 0).metadata())) {
    return copy_model(settings, settings.fetched, stop);
  }
  if (settings.base.empty()) {
    throw Error(Status::usage, settings.fetched +
                                   ": holds links, which need the model that they lead from; give it "
                                   "with `base`, or fetch the whole model");
  }
  const TensorFile base(settings.base);
  const std::string local = base.sha256();
  if (stop()) return std::nullopt;
  if (local == settings.sha256 && same_file(settings.base, settings.out)) return Pulled{base.file_bytes(), 0};
  if (local == settings.sha256) return copy_model(settings, settings.base, stop);
  return apply_link(settings, base, checked_chain(settings, local), stop);
}

}  // namespace phonograd
