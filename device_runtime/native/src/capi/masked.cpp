// pg_cohort, pg_sum, pg_masked and pg_identity: masked rounds.
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "capi/border.h"
#include "capi/sized.h"
#include "formats/json_line.h"
#include "formats/phone_name.h"
#include "masked/cohort.h"
#include "masked/grid.h"
#include "masked/identity.h"
#include "masked/masked_file.h"
#include "masked/phone.h"
#include "masked/sum.h"
#include "phonograd.h"

using namespace phonograd;

struct pg_cohort {
  Cohort cohort;
  uint64_t round;
  GridInfo info;
  std::string told;

  MaskedInfo masked(int width) const { return {info.base_sha256, round, cohort.id(), width}; }
};

struct pg_sum {
  MaskedSum sum;
  std::string told;
  std::vector<float> deltas;
};

struct pg_masked {
  MaskedPhone phone;
};

namespace {

constexpr size_t kFirstMasked = sizeof(pg_masked_options), kFirstRequest = sizeof(pg_request);
constexpr size_t kFirstFacts = sizeof(pg_masked_facts);

std::string text_of(const char* text, const char* name) {
  border::require(text != nullptr, std::string(name) + ": NULL");
  return text;
}

std::optional<PublicKey> vendor_of(const char* hex) {
  if (hex == nullptr) return std::nullopt;
  PublicKey key;
  border::require(from_hex(hex, key.data(), key.size()), "vendor: a public key, 64 digits in lower-case hex, expected");
  return key;
}

json::Value json_of(const char* text, const char* name) {
  return json::parse(text_of(text, name), Status::update, name);
}

void copy_text(const std::string& text, char* out) {
  std::memcpy(out, text.c_str(), text.size() + 1);
}

void tell(std::string& kept, std::string text, const char** out) {
  kept = std::move(text);
  *out = kept.c_str();
}

}  // namespace

extern "C" {

pg_status pg_masked_check(const char* settings, int64_t parameters, pg_masked_facts* facts) {
  return border::guarded([&] {
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
  return border::guarded([&] {
    border::require(cohort != nullptr, "cohort: NULL");
    *cohort = nullptr;
    const GridInfo info{text_of(settings, "settings"), text_of(base_sha256, "base_sha256")};
    *cohort = new pg_cohort{Cohort(round, info.base_sha256, info.settings, vendor_of(vendor)), round, info, ""};
  });
}

void pg_cohort_close(pg_cohort* cohort) {
  delete cohort;
}

pg_status pg_cohort_check_keys(pg_cohort* cohort, const char* keys) {
  return border::guarded([&] {
    border::require(cohort != nullptr, "cohort: NULL");
    cohort->cohort.checked_keys(json_of(keys, "keys"));
  });
}

pg_status pg_cohort_fix(pg_cohort* cohort, const char* keys, const char** json) {
  return border::guarded([&] {
    border::require(cohort != nullptr && json != nullptr, "cohort or json: NULL");
    cohort->cohort.fix(json_of(keys, "keys"));
    const GraphRule& rule = cohort->cohort.rule();
    JsonLine line;
    line.text("cohort", to_hex(cohort->cohort.id())).integer("chance", static_cast<int64_t>(rule.chance));
    line.integer("threshold", static_cast<int64_t>(rule.threshold));
    tell(cohort->told, line.integer("agree", static_cast<int64_t>(rule.agree)).str(), json);
  });
}

pg_status pg_cohort_check_draw(pg_cohort* cohort, const char* phone, const char* draw) {
  return border::guarded([&] {
    border::require(cohort != nullptr, "cohort: NULL");
    cohort->cohort.check_draw(cohort->cohort.place_of(text_of(phone, "phone")), json_of(draw, "draw"));
  });
}

pg_status pg_cohort_draws(pg_cohort* cohort, const char* draws) {
  return border::guarded([&] {
    border::require(cohort != nullptr, "cohort: NULL");
    const json::Value value = json_of(draws, "draws");
    cohort->cohort.set_draws(texts_in(&value, "draws"));
  });
}

pg_status pg_cohort_check_shares(pg_cohort* cohort, const char* phone, const char* shares) {
  return border::guarded([&] {
    border::require(cohort != nullptr, "cohort: NULL");
    cohort->cohort.check_shares(cohort->cohort.place_of(text_of(phone, "phone")), json_of(shares, "shares"));
  });
}

pg_status pg_cohort_members(pg_cohort* cohort, const char* members) {
  return border::guarded([&] {
    border::require(cohort != nullptr, "cohort: NULL");
    cohort->cohort.set_members(json_of(members, "members"));
  });
}

pg_status pg_cohort_list(pg_cohort* cohort, const char* alive) {
  return border::guarded([&] {
    border::require(cohort != nullptr, "cohort: NULL");
    cohort->cohort.set_alive(json_of(alive, "alive"));
  });
}

pg_status pg_cohort_check_agreement(pg_cohort* cohort, const char* phone, const char* signature) {
  return border::guarded([&] {
    border::require(cohort != nullptr, "cohort: NULL");
    const std::string name = text_of(phone, "phone");
    if (cohort->cohort.agrees(cohort->cohort.place_of(name), text_of(signature, "signature"))) return;
    throw Error(Status::update, "phone " + name + ": its signature is not of this list");
  });
}

pg_status pg_cohort_check_answer(pg_cohort* cohort, const char* phone, const char* answer) {
  return border::guarded([&] {
    border::require(cohort != nullptr, "cohort: NULL");
    Answer::parse(cohort->cohort, cohort->cohort.place_of(text_of(phone, "phone")), json_of(answer, "answer"));
  });
}

pg_status pg_sum_open(int64_t values, int32_t width, int32_t threads, pg_sum** sum) {
  return border::guarded([&] {
    border::require(sum != nullptr, "sum: NULL");
    *sum = nullptr;
    border::require(values > 1 && width > 0 && width < 32, "values or width: expected more than 1, and 1 to 31");
    *sum = new pg_sum{MaskedSum(static_cast<size_t>(values), width, threads > 0 ? threads : 2), "", {}};
  });
}

void pg_sum_close(pg_sum* sum) {
  delete sum;
}

pg_status pg_sum_check(const pg_sum* sum, const pg_cohort* cohort, const char* path) {
  return border::guarded([&] {
    border::require(sum != nullptr && cohort != nullptr, "sum or cohort: NULL");
    const MaskedFile file(text_of(path, "path"), cohort->masked(sum->sum.width()), sum->sum.values());
  });
}

pg_status pg_sum_add(pg_sum* sum, const pg_cohort* cohort, const char* path) {
  return border::guarded([&] {
    border::require(sum != nullptr && cohort != nullptr, "sum or cohort: NULL");
    sum->sum.add(MaskedFile(text_of(path, "path"), cohort->masked(sum->sum.width()), sum->sum.values()));
  });
}

pg_status pg_sum_add_grid(pg_sum* sum, const char* path) {
  return border::guarded([&] {
    border::require(sum != nullptr, "sum: NULL");
    sum->sum.add(GridUpdate(text_of(path, "path")));
  });
}

pg_status pg_sum_unmask(pg_sum* sum, const pg_cohort* cohort, const char* answers, const char** json) {
  return border::guarded([&] {
    border::require(sum != nullptr && cohort != nullptr && json != nullptr, "sum, cohort or json: NULL");
    const json::Value value = json_of(answers, "answers");
    const json::Object* members = value.as<json::Object>();
    if (members == nullptr) throw Error(Status::update, "answers: an object expected");
    std::map<size_t, Answer> parsed;
    for (const json::Member& member : *members) {
      const size_t phone = cohort->cohort.place_of(member.key);
      parsed.emplace(phone, Answer::parse(cohort->cohort, phone, member.value));
    }
    const Unmasked found = sum->sum.unmask(cohort->cohort, parsed);
    std::string wrong;
    for (const std::string& name : found.wrong) wrong += (wrong.empty() ? "" : ",") + json::quote(name);
    tell(sum->told, JsonLine().raw("wrong", "[" + wrong + "]").integer("weight", found.weight).str(), json);
  });
}

pg_status pg_sum_values(const pg_sum* sum, const int32_t** values) {
  return border::guarded([&] {
    border::require(sum != nullptr && values != nullptr, "sum or values: NULL");
    *values = sum->sum.sums();
  });
}

pg_status pg_sum_decode(pg_sum* sum, const pg_cohort* cohort, double divisor, const float** deltas) {
  return border::guarded([&] {
    border::require(sum != nullptr && cohort != nullptr && deltas != nullptr, "sum, cohort or deltas: NULL");
    border::require(divisor > 0, "divisor: a number above 0 expected");
    const MaskedSettings& settings = cohort->cohort.settings();
    const GridShape shape(settings, static_cast<int64_t>(sum->sum.values() - 1) * settings.support);
    sum->deltas.resize(static_cast<size_t>(shape.columns * kGridRows));
    decode_grid(sum->sum.sums(), shape, cohort->info, divisor, sum->sum.pool(), sum->deltas.data());
    *deltas = sum->deltas.data();
  });
}

pg_status pg_masked_open(const pg_masked_options* options, pg_masked** masked) {
  return border::guarded([&] {
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
    if (given.threads > 0) settings.threads = given.threads;
    *masked = new pg_masked{MaskedPhone(settings)};
  });
}

void pg_masked_close(pg_masked* masked) {
  delete masked;
}

pg_status pg_masked_take(pg_masked* masked, const char* answer) {
  return border::guarded([&] {
    border::require(masked != nullptr, "masked: NULL");
    masked->phone.take(answer == nullptr ? "" : answer);
  });
}

pg_status pg_masked_request(const pg_masked* masked, pg_request* request) {
  return border::guarded([&] {
    border::require(masked != nullptr, "masked: NULL");
    const PhoneRequest& now = masked->phone.request();
    pg_request found{};
    found.action = static_cast<int32_t>(now.action);
    found.path = now.path.c_str();
    found.body = now.body.c_str();
    border::fill_in(found, kFirstRequest, "pg_request", request);
  });
}

pg_status pg_identity_new(const char* path, char* public_key) {
  return border::guarded([&] {
    border::require(public_key != nullptr, "public_key: NULL");
    copy_text(to_hex(new_identity(text_of(path, "path"))), public_key);
  });
}

pg_status pg_identity_public(const char* path, char* public_key) {
  return border::guarded([&] {
    border::require(public_key != nullptr, "public_key: NULL");
    copy_text(to_hex(ed25519_public(read_identity(text_of(path, "path")))), public_key);
  });
}

pg_status pg_identity_certify(const char* path, const char* phone, const char* public_key, char* certificate) {
  return border::guarded([&] {
    border::require(certificate != nullptr, "certificate: NULL");
    const std::string name = text_of(phone, "phone");
    PublicKey key;
    check_phone_name(name);
    border::require(from_hex(text_of(public_key, "public_key"), key.data(), key.size()),
                    "public_key: 64 digits in lower-case hex expected");
    copy_text(signed_text(read_identity(text_of(path, "path")), certificate_text(name, key)), certificate);
  });
}

}  // extern "C"
