// apps/pretrain_gpt/rehearsal.hpp - what a step computes and sends, found out before the training:
// some steps on a copy of the model, each rank for itself, all at once.
//
// Every rank is its own data-parallel group of one: the same buckets and hooks, and nothing that
// travels. Then a bucket's collective runs alone, compute runs alone, and both run at once: on a
// CPU they share cores.
//
// Ordering       collective.
#pragma once

#include "data.hpp"
#include "flags.hpp"
#include "prediction.hpp"
#include "tutti/libtorch.hpp"

namespace pretrain {

// `options` are those of the training, `real` what it will train with. Nothing of `real` changes.
tutti::Result<Rehearsal> rehearse(tutti::Group& group, const Flags& flags, Data& data,
                                  tutti::libtorch::Options options,
                                  tutti::train::DataParallel& real);

}  // namespace pretrain
