// pg_masked_check, pg_cohort, pg_sum, pg_masked and pg_identity: masked rounds.
#include <cstring>
#include <optional>
#include <string>

#include "capi/border.h"
#include "capi/handles.h"
#include "capi/sized.h"
#include "formats/phone_name.h"
#include "masked/cohort.h"
#include "masked/masked_file.h"
#include "masked/phone.h"
#include "masked/sum.h"
#include "phonograd.h"

using namespace phonograd;

struct pg_cohort {
  Cohort cohort;
  std::string told;
};

struct pg_sum {
  MaskedSum sum;
  std::string told;
  std::vector<float> deltas;
};

struct pg_masked {
  MaskedPhone phone;
  std::string told;
};

namespace {

constexpr size_t kFirstMasked = sizeof(pg_masked_options), kFirstFacts = sizeof(pg_masked_facts);

std::string text_of(const char* text, const char* name) {
  border::require(text != nullptr, std::string(name) + ": NULL");
  return text;
}

std::optional<std::string> vendor_of(const char* hex) {
  return hex == nullptr ? std::nullopt : std::optional<std::string>(hex);
}

json::Value json_of(const char* text, const char* name) {
  return json::parse(text_of(text, name), Status::update, name);
}

void copy_text(const std::string& text, char* out) {
  std::memcpy(out, text.c_str(), text.size() + 1);
}

void tell(std::string& kept, const JsonLine& line, const char** out) {
  kept = line.str();
  *out = kept.c_str();
}

// Work with a handle.
template <typename Handle, typename Work>
pg_status with(Handle* handle, Work work) {
  return border::run_guarded([&] {
    border::require(handle != nullptr, "handle: NULL");
    work(*handle);
  });
}

}  // namespace

extern "C" {

pg_status pg_masked_check(const char* settings, int64_t parameters, pg_masked_facts* facts) {
  return border::run_guarded([&] {
    border::require(parameters >= 0, "parameters: expected at least 0");
    const GridShape shape(masked_settings(text_of(settings, "settings")), parameters);
    pg_masked_facts found{};
    found.values = shape.values(), found.elements = shape.columns * kGridRows, found.width = shape.width;
    found.step = parameters == 0 ? 0 : shape.step, found.noise = shape.noise;
    found.sensitivity = shape.settings.sensitivity(), found.honest = shape.settings.fewest_honest();
    border::fill_in(found, kFirstFacts, "pg_masked_facts", facts);
  });
}

pg_status pg_cohort_open(uint64_t round, const char* base_sha256, const char* settings, const char* vendor,
                         pg_cohort** cohort) {
  return border::run_guarded([&] {
    border::require(cohort != nullptr, "cohort: NULL");
    *cohort = nullptr;
    const GridInfo grid{text_of(settings, "settings"), text_of(base_sha256, "base_sha256")};
    *cohort = new pg_cohort{Cohort(round, grid, vendor_of(vendor)), ""};
  });
}

void pg_cohort_close(pg_cohort* cohort) {
  delete cohort;
}

pg_status pg_cohort_check(const pg_cohort* cohort, const char* kind, const char* phone, const char* message) {
  return with(cohort, [&](const pg_cohort& of) {
    of.cohort.check(text_of(kind, "kind"), text_of(phone, "phone"), json_of(message, "message"));
  });
}

pg_status pg_cohort_fix(pg_cohort* cohort, const char* what, const char* answer, const char** json) {
  return with(cohort, [&](pg_cohort& of) {
    border::require(json != nullptr, "json: NULL");
    of.cohort.fix(text_of(what, "what"), json_of(answer, "answer"));
    const GraphRule& rule = of.cohort.rule();
    JsonLine line;
    line.text("cohort", of.cohort.id()).integer("chance", static_cast<int64_t>(rule.chance));
    line.integer("threshold", static_cast<int64_t>(rule.threshold));
    tell(of.told, line.integer("agree", static_cast<int64_t>(rule.agree)), json);
  });
}

pg_status pg_sum_open(int64_t values, int32_t width, int32_t threads, pg_sum** sum) {
  return border::run_guarded([&] {
    border::require(sum != nullptr, "sum: NULL");
    *sum = nullptr;
    border::require(values > 1 && width > 0 && width < 32, "values or width: expected more than 1, and 1 to 31");
    *sum = new pg_sum{MaskedSum(static_cast<size_t>(values), width, threads_of(threads)), "", {}};
  });
}

void pg_sum_close(pg_sum* sum) {
  delete sum;
}

pg_status pg_sum_add(pg_sum* sum, const pg_cohort* cohort, const char* path) {
  return with(sum, [&](pg_sum& of) {
    border::require(cohort != nullptr, "cohort: NULL");
    const TensorFile file(text_of(path, "path"), Status::update);
    check_masked(file, cohort->cohort, of.sum.values(), of.sum.width());
    of.sum.add(file);
  });
}

pg_status pg_sum_add_grid(pg_sum* sum, const char* path) {
  return with(sum, [&](pg_sum& of) {
    GridUpdate grid(text_of(path, "path"));
    of.sum.add(grid);
  });
}

pg_status pg_sum_unmask(pg_sum* sum, const pg_cohort* cohort, const char* answers, const char** json) {
  return with(sum, [&](pg_sum& of) {
    border::require(cohort != nullptr && json != nullptr, "cohort or json: NULL");
    const json::Value value = json_of(answers, "answers");
    const json::Object* members = value.as<json::Object>();
    if (members == nullptr) throw Error(Status::update, "answers: an object expected");
    std::map<size_t, Answer> parsed;
    for (const json::Member& member : *members) {
      const size_t phone = cohort->cohort.place_of(member.key);
      parsed.emplace(phone, cohort->cohort.answer_in(phone, member.value));
    }
    std::string wrong;
    for (const size_t phone : of.sum.unmask(cohort->cohort, parsed)) {
      wrong += (wrong.empty() ? "" : ",") + json::quote(cohort->cohort.phones()[phone].phone);
    }
    const int32_t weight = of.sum.sums()[of.sum.values() - 1];
    tell(of.told, JsonLine().raw("wrong", "[" + wrong + "]").integer("weight", weight), json);
  });
}

pg_status pg_sum_values(const pg_sum* sum, const int32_t** values) {
  return with(sum, [&](const pg_sum& of) {
    border::require(values != nullptr, "values: NULL");
    *values = of.sum.sums();
  });
}

pg_status pg_sum_decode(pg_sum* sum, const pg_cohort* cohort, double divisor, const float** deltas) {
  return with(sum, [&](pg_sum& of) {
    border::require(cohort != nullptr && deltas != nullptr, "cohort or deltas: NULL");
    border::require(divisor > 0, "divisor: a number above 0 expected");
    const MaskedSettings& settings = cohort->cohort.settings();
    const GridShape shape(settings, static_cast<int64_t>(of.sum.values() - 1) * settings.support);
    of.deltas.resize(static_cast<size_t>(shape.columns * kGridRows));
    decode_grid(of.sum.sums(), shape, cohort->cohort.grid(), divisor, of.sum.pool(), of.deltas.data());
    *deltas = of.deltas.data();
  });
}

pg_status pg_masked_open(const pg_masked_options* options, pg_masked** masked) {
  return border::run_guarded([&] {
    border::require(masked != nullptr, "masked: NULL");
    *masked = nullptr;
    const pg_masked_options given = border::options_of(options, kFirstMasked, "pg_masked_options");
    MaskedPhoneSettings settings;
    settings.folder = text_of(given.state, "state");
    settings.identity = text_of(given.identity, "identity");
    settings.certificate = given.certificate == nullptr ? "" : given.certificate;
    settings.vendor = vendor_of(given.vendor);
    settings.phone = text_of(given.phone, "phone");
    settings.grid = text_of(given.grid, "grid");
    settings.round = given.round;
    if (given.min_cohort > 0) settings.min_cohort = given.min_cohort;
    settings.threads = threads_of(given.threads);
    *masked = new pg_masked{MaskedPhone(settings), ""};
  });
}

void pg_masked_close(pg_masked* masked) {
  delete masked;
}

pg_status pg_masked_next(pg_masked* masked, const char* answer, const char** json) {
  return with(masked, [&](pg_masked& of) {
    border::require(json != nullptr, "json: NULL");
    if (answer != nullptr) of.phone.take(answer);
    JsonLine line;
    of.phone.request().add_to(line);
    tell(of.told, line, json);
  });
}

pg_status pg_identity_new(const char* path, char* public_key) {
  return border::run_guarded([&] {
    border::require(public_key != nullptr, "public_key: NULL");
    copy_text(public_identity(new_identity(text_of(path, "path"))), public_key);
  });
}

pg_status pg_identity_public(const char* path, char* public_key) {
  return border::run_guarded([&] {
    border::require(public_key != nullptr, "public_key: NULL");
    copy_text(public_identity(read_identity(text_of(path, "path"))), public_key);
  });
}

pg_status pg_identity_certify(const char* path, const char* phone, const char* public_key, char* certificate) {
  return border::run_guarded([&] {
    border::require(certificate != nullptr, "certificate: NULL");
    const std::string name = text_of(phone, "phone"), key = text_of(public_key, "public_key");
    check_phone_name(name);
    border::require(is_hex(key, 32), "public_key: 64 digits in lower-case hex expected");
    copy_text(signed_text(read_identity(text_of(path, "path")), certificate_text(name, key)), certificate);
  });
}

}  // extern "C"
