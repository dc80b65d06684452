// programs/rank_words.hpp - what a rank of a fault test is told, and what it says of its end.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include "core/json.hpp"
#include "strike.hpp"
#include "tutti/status.hpp"

namespace tutti::test {

// NAME=VALUE words. "1:NAME=VALUE" counts in the job's first restart only, "0:" before any.
class Flags {
 public:
  // Absent, with a word on stderr, where one of them is something else.
  static std::optional<Flags> read(int count, char** arguments) {
    Flags flags;
    const char* said = std::getenv("TUTTI_RESTART");
    const std::string restart = std::string(said == nullptr ? "0" : said) + ":";
    for (int i = 1; i < count; ++i) {
      std::string word = arguments[i];
      const std::size_t equals = word.find('=');
      if (equals == std::string::npos) {
        std::fprintf(stderr, "not NAME=VALUE: %s\n", word.c_str());
        return std::nullopt;
      }
      std::size_t name = word.find(':');
      if (name >= equals)
        name = 0;
      else if (word.substr(0, ++name) != restart)
        continue;
      flags.words_[word.substr(name, equals - name)] = word.substr(equals + 1);
    }
    return flags;
  }

  std::string text(const std::string& name, const std::string& otherwise = "") const {
    const auto found = words_.find(name);
    return found == words_.end() ? otherwise : found->second;
  }
  double number(const std::string& name, double otherwise) const {
    const auto found = words_.find(name);
    return found == words_.end() ? otherwise : std::atof(found->second.c_str());
  }
  // Whether `rank` is in the list of that name.
  bool names(const std::string& name, int rank) const {
    return ("," + text(name) + ",").find("," + std::to_string(rank) + ",") != std::string::npos;
  }

 private:
  std::map<std::string, std::string> words_;
};

// How a rank ended, as a line of JSON; returns its exit code.
struct LastWords {
  int rank = -1;
  const char* stage = "end";  // init, run, end
  std::string operation;
  std::int64_t done = 0;
  Json more{};  // whatever else is to be known

  int say(const Status& status) const {
    Json line{{"rank", rank},
              {"stage", stage},
              {"code", std::string(to_string(status.code()))},
              {"peer", status.peer()},
              {"sequence", static_cast<std::int64_t>(status.sequence())},
              {"operation", operation},
              {"done", done},
              {"at", now_s()},
              {"message", status.message()},
              {"more", more}};
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
    return status.ok() ? 0 : 3;
  }
};

}  // namespace tutti::test
