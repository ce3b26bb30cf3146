// The seed of `train`. FORMAT.md, "Seeds"; the rules are those of device_runtime/update/seeds.py and `phonograd train`.
#pragma once

#include <cstdint>
#include <string>

#include "formats/manifest.h"
#include "phone/arguments.h"
#include "training/state.h"

namespace phonograd::phone {

// The seed of a phone's part in a round. `base_sha256` is the hex identity of the model that training starts from.
uint64_t seed_of(const std::string& base_sha256, uint64_t round, const std::string& phone);

// Throws Error(usage) for --seed and --phone together, and for values of these and of an output sample that can't be.
void check_seed_options(const Arguments& arguments);

// --seed; else the seed of --phone in the round; else the seed of the state in `folder` (nullptr: none), from which a
// run without either option resumes; else a random one. Throws Error(weights) if the file of --weights can't be read.
uint64_t training_seed(const Arguments& arguments, const Manifest& manifest, uint64_t round, const StateFolder* folder);

// What --output-sample asks for; nothing drawn without it. The seed is --sample-seed, else that of the state in
// `folder` (nullptr: none), else a random one, which no one else may learn.
SampleDraw sample_draw(const Arguments& arguments, const StateFolder* folder);

}  // namespace phonograd::phone
