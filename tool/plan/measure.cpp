// The launcher's side of tutti plan measure.
#include "tool/plan/measure.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "core/files.hpp"
#include "core/json.hpp"
#include "core/output_file.hpp"
#include "schedule/catalog.hpp"
#include "tool/bench/arithmetic.hpp"
#include "tool/bench/contestants.hpp"
#include "tool/interruption.hpp"
#include "tool/run/launch.hpp"
#include "tutti/shape.hpp"

namespace tutti::tool::plan {
namespace {
namespace fs = std::filesystem;

Result<std::string> written_by_ranks(const std::string& path) {
  auto text = read_file(path);
  if (text.ok()) return text;
  return Status(Code::io, fmt::format("{} is missing: the ranks did not write it", path));
}

Json request_for(const MeasureJob& job, const std::vector<MeasuredCell>& cells,
                 const std::string& result) {
  Json list = Json::array();
  for (const MeasuredCell& cell : cells)
    list.push_back(
        Json::array({to_string(cell.collective), to_string(cell.algorithm), cell.bytes}));
  return {{"seconds", job.seconds}, {"label", job.label}, {"cells", list}, {"result", result}};
}

// Settings of the ranks for the time of a job.
class Settings {
 public:
  void set(const char* name, const std::string& value) {
    const char* before = std::getenv(name);
    saved_.push_back({name, before != nullptr, before != nullptr ? before : ""});
    ::setenv(name, value.c_str(), 1);
  }
  ~Settings() {
    for (auto& [name, was_set, value] : saved_)
      was_set ? ::setenv(name, value.c_str(), 1) : ::unsetenv(name);
  }

 private:
  struct Saved {
    const char* name;
    bool was_set;
    std::string value;
  };
  std::vector<Saved> saved_;
};

Status read_times(const std::string& path, std::vector<MeasuredCell>& cells) {
  const auto text = written_by_ranks(path);
  if (!text.ok()) return text.status();
  const auto document = Json::parse(*text);
  if (!document.ok() || document->items().size() != cells.size())
    return {Code::corrupt, "the ranks' times cannot be read"};
  for (std::size_t i = 0; i < cells.size(); ++i) {
    std::vector<double> seconds;
    for (const Json& visit : (*document)[i].items()) seconds.push_back(visit.number());
    std::sort(seconds.begin(), seconds.end());
    cells[i].visits = static_cast<int>(seconds.size());
    if (!seconds.empty()) cells[i].seconds = seconds[0];
    if (seconds.size() > 1 && seconds[0] > 0) cells[i].spread = seconds[1] / seconds[0] - 1;
  }
  return {};
}

}  // namespace

std::vector<MeasuredCell> cells_for(int ranks, const std::vector<std::size_t>& sizes) {
  std::vector<MeasuredCell> cells;
  for (const auto& entry : schedule::catalog()) {
    if (entry.by_switch) continue;  // there is none
    schedule::Request request;
    request.collective = entry.collective;
    request.size = ranks;
    if (!schedule::build(entry.algorithm, request).ok()) continue;
    std::size_t last = ~std::size_t{0};
    for (const std::size_t size : sizes) {
      const std::size_t bytes = fitting_bytes(entry.collective, size, Dtype::f32, ranks);
      const bool empty = !shape_of(entry.collective).has_data();
      if (bytes != last)
        cells.push_back({entry.collective, entry.algorithm, ranks, empty ? 0 : bytes});
      last = bytes;
      if (empty) break;
    }
  }
  return cells;
}

WorkFolder::WorkFolder() {
  std::string name = (fs::temp_directory_path() / "tutti-plan-XXXXXX").string();
  if (::mkdtemp(name.data()) != nullptr) path_ = name;
}

WorkFolder::~WorkFolder() {
  std::error_code ignored;
  if (ok()) fs::remove_all(path_, ignored);
}

Status measure_cells(const WorkFolder& folder, const MeasureJob& job,
                     std::vector<MeasuredCell>& cells) {
  if (!folder.ok()) return {Code::io, "no temporary folder can be made"};
  const std::string request = folder.path() + "/request.json";
  const std::string result = folder.path() + "/result.json";
  std::error_code ignored;
  fs::remove(result, ignored);
  if (interruption() != 0) return {Code::aborted, "interrupted"};
  if (Status status = write_file(request, request_for(job, cells, result).dump()); !status.ok())
    return status;
  Settings settings;
  settings.set("TUTTI_TUNING", job.tuning);
  settings.set("TUTTI_CACHE_DIR", folder.path());
  settings.set("TUTTI_TRANSPORT", job.transport);
  RunOptions run;
  run.ranks = job.ranks;
  run.prefixes = false;
  run.grace = std::chrono::seconds(1);
  run.program = {own_folder() + "/tutti", "plan", "measure", "--request", request};
  if (::isatty(STDERR_FILENO) != 0)
    run.program.insert(run.program.end(), {"--terminal", fmt::format("/proc/{}/fd/2", ::getpid())});
  const int code = launch_job(run);
  note_interruption(code);
  if (interruption() != 0) {
    (void)read_times(result, cells);  // what they kept until then
    return {Code::aborted, "interrupted"};
  }
  if (code != 0) return {Code::aborted, fmt::format("the ranks ended with code {}", code)};
  return read_times(result, cells);
}

Result<tuner::Machine> measured_machine(const WorkFolder& folder) {
  for (const auto& file : fs::directory_iterator(folder.path())) {
    if (!file.path().filename().string().starts_with("tuning-")) continue;
    const auto text = written_by_ranks(file.path().string());
    if (!text.ok()) return text.status();
    auto machine = tuner::parse_machine(*text);
    std::error_code ignored;
    fs::remove(file.path(), ignored);
    return machine;
  }
  return Status(Code::io, "the ranks did not keep what they measured of the machine");
}

}  // namespace tutti::tool::plan
