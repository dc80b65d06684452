// schedule/proof/results.hpp - what each result chunk must be, whichever form made it.
#pragma once

#include <functional>
#include <span>

#include "schedule/proof/expressions.hpp"
#include "schedule/schedule.hpp"
#include "schedule/verify.hpp"

namespace tutti::schedule::proof {

// "schedule: …", Code::internal: a schedule that is wrong is a bug of ours.
Status wrong(std::string what);

// The programs (their ops do not matter) belong together: one per rank, the same call.
Status check_headers(std::span<const Program> programs);

// What a chunk of a rank's output holds at the end.
using ValueOf = std::function<Value(int rank, std::uint32_t chunk)>;

// Every result is the right expression. Fills in what the report says of folds, and `expression`.
Status check_results(std::span<const Program> programs, const Expressions& expressions,
                     const ValueOf& value_of, VerifyReport& report);

}  // namespace tutti::schedule::proof
