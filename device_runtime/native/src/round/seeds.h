// The seeds of a round. FORMAT.md, "Seeds"; the rules are those of device_runtime/update/seeds.py and `phonograd
// train`.
#pragma once

#include <cstdint>
#include <string>

#include "formats/manifest.h"
#include "round/settings.h"
#include "training/state.h"

namespace phonograd {

// The seed of a phone's part in a round. `base_sha256` is the hex identity of the model that training starts from.
uint64_t seed_of(const std::string& base_sha256, uint64_t round, const std::string& phone);

// The settings' seed; else that of the phone in the round; else that of the state in `folder` (nullptr: none), from
// which a run without either resumes; else a random one. Throws Error(weights) if the file to start from can't be read.
uint64_t training_seed(const RoundSettings& settings, const Manifest& manifest, const StateFolder* folder);

// How the settings' output sample is drawn; nothing is drawn without one. The seed is the settings', else that of the
// state in `folder` (nullptr: none), else a random one, which no one else may learn.
SampleDraw sample_draw(const RoundSettings& settings, const StateFolder* folder);

}  // namespace phonograd
