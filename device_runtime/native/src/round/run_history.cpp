#include "round/run_history.h"

#include "formats/json_file.h"
#include "formats/sha256.h"

namespace phonograd {
namespace {

int64_t whole_number(const json::Value& round, const char* name, int64_t least) {
  const json::Value* found = round.find(name);
  const int64_t* number = found == nullptr ? nullptr : found->as<int64_t>();
  if (number != nullptr && *number >= least) return *number;
  throw Error(Status::usage, std::string("`run`: `") + name + "`, a whole number of at least " + std::to_string(least) +
                                 ", expected, found " + (found == nullptr ? "none" : found->text()) +
                                 "; pass on what the server says");
}

std::map<std::string, std::vector<int64_t>> read_steps(const std::string& path) {
  std::map<std::string, std::vector<int64_t>> runs;
  if (!json::is_there(path)) return runs;
  const json::Value value = json::read_own(path);
  const json::Object* object = value.as<json::Object>();
  bool good = object != nullptr;
  for (size_t at = 0; good && at < object->size(); ++at) {
    const json::Array* list = (*object)[at].value.as<json::Array>();
    std::vector<int64_t>& steps = runs[(*object)[at].key];
    good = list != nullptr && !list->empty();
    for (size_t i = 0; good && i < list->size(); ++i) {
      const int64_t* step = (*list)[i].as<int64_t>();
      good = step != nullptr && *step > (steps.empty() ? 0 : steps.back());
      if (good) steps.push_back(*step);
    }
  }
  if (good) return runs;
  throw Error(Status::state, path +
                                 ": a list of rising steps for each run expected; it says which rounds this phone took "
                                 "part in: restore it");
}

}  // namespace

RunHistory::RunHistory(const std::string& round, const std::string& path) : path_(path), steps_(read_steps(path)) {
  const json::Value said = json::parse(round, Status::usage, "`run`");
  const json::Value* run = said.find("run");
  const std::string* sha256 = run == nullptr ? nullptr : run->as<std::string>();
  if (sha256 == nullptr || !is_sha256(*sha256)) {
    throw Error(Status::usage, "`run`: the SHA-256 of a run expected; pass on what the server says");
  }
  run_ = *sha256;
  step_ = whole_number(said, "step", 1);
  const int64_t separation = whole_number(said, "min_separation", 1);
  const int64_t most = whole_number(said, "max_participations", 1);
  const auto kept = steps_.find(run_);
  if (kept == steps_.end() || kept->second.back() == step_) return;
  const std::vector<int64_t>& steps = kept->second;
  if (static_cast<int64_t>(steps.size()) >= most) {
    throw Error(Status::took_part, path_ + ": this phone took part " + std::to_string(steps.size()) +
                                       " times in the run, as often as it may (`max_participations`)");
  }
  if (step_ - steps.back() >= separation) return;
  throw Error(Status::took_part, path_ + ": this phone took part in step " + std::to_string(steps.back()) +
                                     " of the run, and rests until step " + std::to_string(steps.back() + separation) +
                                     " (`min_separation`), found step " + std::to_string(step_) + "; come again later");
}

void RunHistory::note() {
  std::vector<int64_t>& steps = steps_[run_];
  if (!steps.empty() && steps.back() == step_) return;
  steps.push_back(step_);
  JsonLine line;
  for (const auto& [run, kept] : steps_) {
    std::string list;
    for (const int64_t step : kept) list += (list.empty() ? "" : ",") + std::to_string(step);
    line.raw(run.c_str(), "[" + list + "]");
  }
  json::write_own(path_, line);
}

}  // namespace phonograd
