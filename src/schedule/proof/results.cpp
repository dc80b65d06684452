#include "schedule/proof/results.hpp"

#include <fmt/format.h>

#include "tutti/shape.hpp"

namespace tutti::schedule::proof {
namespace {

class Results {
 public:
  Results(std::span<const Program> programs, const Expressions& expressions,
          const ValueOf& value_of, VerifyReport& report)
      : programs_(programs), expressions_(expressions), value_of_(value_of), report_(report) {}

  Status check() {
    for (const Program& program : programs_) {
      const bool nothing = shape_of(program.collective).gets_nothing(program.rank, ranks());
      for (std::uint32_t c = 0; c < chunk_count(program, Space::output) && !nothing; ++c) {
        if (Status status = check_result(program, c); !status.ok()) return status;
      }
    }
    const int teller = has_root(programs_[0].collective) ? programs_[0].root : 0;
    if (chunk_count(programs_[teller], Space::output) > 0) {
      report_.expression = expressions_.print(value_of_(teller, 0));
    }
    return {};
  }

 private:
  int ranks() const { return programs_.front().size; }

  Status check_result(const Program& program, std::uint32_t chunk) {
    const Value value = value_of_(program.rank, chunk);
    const std::uint64_t extent = extent_of(program, Space::output, chunk);
    const CollectiveShape& shape = shape_of(program.collective);
    if (shape.folds())
      return check_fold(program, chunk, value, shape.contributors(program.rank, ranks()));
    const int origin = shape.origin(static_cast<int>(chunk / program.cut), program.root);
    if (expressions_.is_leaf_of(value, origin, extent)) return {};
    return wrong(fmt::format("rank {} ends with {} in output[{}], not with rank {}'s part",
                             program.rank, expressions_.print(value), chunk, origin));
  }

  Status check_fold(const Program& program, std::uint32_t chunk, Value value, int contributors) {
    const std::string where = fmt::format("rank {}'s output[{}]", program.rank, chunk);
    int odd_one = -1;
    if (value == kUndefined || expressions_.is_leaf(value)) return wrong(where + " is not a fold");
    if (!expressions_.is_finished(value)) return wrong(where + " was not finished");
    if (!expressions_.covers(value, contributors, odd_one)) {
      const char* fault = odd_one < contributors ? "lacks" : "must not have";
      return wrong(fmt::format("{} {} the contribution of rank {}", where, fault, odd_one));
    }
    // The same formula on all ranks gives the same bits on all ranks.
    if (shape_of(program.collective).all_get_the_same() && value != value_of_(0, chunk)) {
      return wrong(where + " is another formula than rank 0's");
    }
    report_.whole_folds &= expressions_.is_whole(value);
    report_.rank_ordered &= expressions_.is_left(value);
    report_.tree_ordered &= expressions_.is_balanced(value);
    return {};
  }

  std::span<const Program> programs_;
  const Expressions& expressions_;
  const ValueOf& value_of_;
  VerifyReport& report_;
};

}  // namespace

Status wrong(std::string what) { return {Code::internal, "schedule: " + std::move(what)}; }

Status check_headers(std::span<const Program> programs) {
  if (programs.empty()) return wrong("there are no programs");
  const Program& model = programs.front();
  // One more than there are ranks is that of a switch.
  const auto count = static_cast<int>(programs.size());
  for (std::size_t r = 0; r < programs.size(); ++r) {
    const Program& program = programs[r];
    const bool fits = program.size == model.size &&
                      (program.size == count || (program.size > 1 && program.size == count - 1));
    if (program.rank != static_cast<int>(r) || !fits) {
      return wrong(fmt::format("program {} of {} says that it is rank {} of {}", r, programs.size(),
                               program.rank, program.size));
    }
    if (program.collective != model.collective || program.root != model.root ||
        program.cut != model.cut) {
      return wrong(fmt::format("rank {} has another collective, root or cut than rank 0", r));
    }
    if (program.cut == 0 || program.root < 0 || program.root >= program.size) {
      return wrong(fmt::format("rank {} has root {} and cut {}", r, program.root, program.cut));
    }
    const auto extents = extent_count(program.collective, program.size, program.cut);
    for (std::uint64_t extent : program.scratch) {
      if (extent >= extents && extent != kNoBytes)
        return wrong(fmt::format("rank {} has scratch of no extent", r));
    }
  }
  return {};
}

Status check_results(std::span<const Program> programs, const Expressions& expressions,
                     const ValueOf& value_of, VerifyReport& report) {
  return Results(programs, expressions, value_of, report).check();
}

}  // namespace tutti::schedule::proof
