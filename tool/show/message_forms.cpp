#include <fmt/format.h>

#include "schedule/host/lower.hpp"
#include "schedule/passes.hpp"
#include "tool/show/forms.hpp"

namespace tutti::tool {
namespace {

struct Pass {
  std::string_view name;
  std::string_view changes;
  schedule::Program (*apply)(schedule::Program);
};
constexpr Pass kPasses[] = {
    {"fuse_folds", "receives that only feed a fold become its operands", schedule::fuse_folds}};

}  // namespace

Result<std::vector<MessageForm>> message_forms(Algorithm algorithm,
                                               const schedule::Request& request) {
  auto built = schedule::build_all(algorithm, request);
  if (!built.ok()) return built.status();
  std::vector<MessageForm> forms{{"as built", "", *std::move(built), {}}};
  for (const Pass& pass : kPasses) {
    auto programs = forms.back().programs;
    for (schedule::Program& program : programs) program = pass.apply(std::move(program));
    if (programs != forms.back().programs)
      forms.push_back({pass.name, pass.changes, std::move(programs), {}});
  }
  for (MessageForm& form : forms) {
    auto report = schedule::verify(form.programs);
    if (!report.ok()) return report.status();
    form.report = *std::move(report);
  }
  return forms;
}

std::string why_by_message(const MessageForm& form) {
  const std::size_t ranks = form.programs.size();
  if (ranks < 2) return "a rank alone has nobody to meet";
  if (ranks > static_cast<std::size_t>(schedule::kMostHostRanks))
    return fmt::format("more than {} ranks do not meet in memory", schedule::kMostHostRanks);
  return schedule::Lowering(form.programs).objection();
}

}  // namespace tutti::tool
