// Sequences of pretrain_gpt: which tokens they hold, in which order, and what is refused.
#include "data.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

namespace pretrain {
namespace {

using tutti::Status;

template <class Number>
void put(std::string& out, Number number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// As Megatron writes them: 16-bit tokens, a document a sequence.
void write_indexed(const std::string& prefix,
                   const std::vector<std::vector<std::uint16_t>>& documents) {
  std::string tokens, index("MMIDIDX\0\0", 9), offsets;
  put(index, std::uint64_t{1});
  put(index, std::uint8_t{8});
  put(index, std::uint64_t{documents.size()});
  put(index, std::uint64_t{documents.size() + 1});
  for (const auto& document : documents) {
    put(index, static_cast<std::int32_t>(document.size()));
    put(offsets, static_cast<std::int64_t>(tokens.size()));
    for (const std::uint16_t token : document) put(tokens, token);
  }
  index += offsets;
  for (std::size_t i = 0; i <= documents.size(); ++i) put(index, static_cast<std::int64_t>(i));
  write(prefix + ".bin", tokens);
  write(prefix + ".idx", index);
}

// Documents of ten tokens that count up from `first`.
std::vector<std::vector<std::uint16_t>> counting(int documents, int first) {
  std::vector<std::vector<std::uint16_t>> made(static_cast<std::size_t>(documents));
  int next = first;
  for (auto& document : made)
    for (int i = 0; i < 10; ++i) document.push_back(static_cast<std::uint16_t>(next++));
  return made;
}

class TokenFiles : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  Flags flags_of(std::vector<std::string> paths) const {
    Flags flags;
    flags.seq_length = 4;
    flags.vocab_size = 60000;
    flags.split = "8,1,1";
    flags.data_path = std::move(paths);
    return flags;
  }
  std::string refusal(const Flags& flags) const {
    const auto data = Data::open(flags);
    return data.ok() ? "taken" : data.status().message();
  }

 private:
  std::string folder_ = testing::TempDir() + "tokens" + std::to_string(::getpid());
};

TEST_F(TokenFiles, give_each_sequence_of_the_training_documents_once_in_an_epoch) {
  write_indexed(path("a"), counting(100, 0));  // 800 of 1000 tokens are for the training
  auto data = Data::open(flags_of({path("a")}));
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::set<std::int64_t> begins;
    for (int i = 0; i < 199; ++i) {
      const TokenBatch batch = *data->training(static_cast<std::uint64_t>(epoch * 199 + i), 1);
      EXPECT_EQ(batch.tokens[0] % 4, 0);
      for (std::size_t j = 0; j < 4; ++j) {
        EXPECT_EQ(batch.tokens[j], batch.tokens[0] + static_cast<int>(j));
        EXPECT_EQ(batch.labels[j], batch.tokens[j] + 1);
        EXPECT_LT(batch.labels[j], 800);
      }
      begins.insert(batch.tokens[0]);
    }
    EXPECT_EQ(begins.size(), 199U);
  }
  EXPECT_NE(data->training(0, 199)->tokens, data->training(199, 199)->tokens);  // epochs differ
  const TokenBatch validation = *data->validation(0, 1);
  EXPECT_EQ(validation.tokens[0], 800);
  EXPECT_EQ(data->validation(24, 1)->tokens[0], 800);  // 24 sequences in 100 tokens
}

TEST_F(TokenFiles, are_blended_by_weight_and_go_on_anywhere) {
  write_indexed(path("a"), counting(100, 0));
  write_indexed(path("b"), counting(300, 1000));
  write_indexed(path("c"), counting(100, 10000));
  const Flags flags = flags_of({"5", path("a"), "3", path("b"), "2", path("c")});
  auto data = Data::open(flags), again = Data::open(flags);
  ASSERT_TRUE(data.ok() && again.ok());
  std::map<int, int> drawn;
  std::vector<std::int64_t> tokens;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const auto batch = *data->training(i, 1);
    const std::int64_t first = batch.tokens[0];
    ++drawn[first < 1000 ? 0 : first < 10000 ? 1 : 2];
    tokens.insert(tokens.end(), batch.tokens.begin(), batch.tokens.end());
    EXPECT_NEAR(drawn[0], 0.5 * static_cast<double>(i + 1), 1.01);
    EXPECT_NEAR(drawn[1], 0.3 * static_cast<double>(i + 1), 2.01);
  }
  const auto late = again->training(700, 300)->tokens;
  EXPECT_EQ(late, std::vector<std::int64_t>(tokens.begin() + 700 * 4, tokens.end()));
  auto by_size = Data::open(flags_of({path("a"), path("b")}));
  ASSERT_TRUE(by_size.ok());
  int of_first = 0;
  for (std::uint64_t i = 0; i < 400; ++i) of_first += by_size->training(i, 1)->tokens[0] < 1000;
  EXPECT_NEAR(of_first, 100, 1);
}

TEST_F(TokenFiles, have_an_identity_that_tells_other_tokens_and_other_blends) {
  write_indexed(path("a"), counting(100, 0));
  write_indexed(path("b"), counting(100, 0));
  const auto identity = [&](std::vector<std::string> paths) {
    const auto data = Data::open(flags_of(std::move(paths)));
    EXPECT_TRUE(data.ok());
    return data->identity();
  };
  const auto before = identity({path("a")});
  EXPECT_EQ(before, identity({path("a")}));
  EXPECT_NE(before, identity({path("b")}));
  EXPECT_NE(identity({"1", path("a"), "2", path("b")}), identity({"2", path("a"), "1", path("b")}));
  write_indexed(path("a"), counting(100, 1));
  EXPECT_NE(before, identity({path("a")}));
}

TEST_F(TokenFiles, say_how_large_their_vocabulary_is_or_it_must_be_given) {
  write_indexed(path("a"), counting(100, 0));
  Flags flags = flags_of({path("a")});
  flags.vocab_size = 0;
  EXPECT_NE(refusal(flags).find("--vocab-size is needed"), std::string::npos);
  write(path("a.tokens"), "vocab_size 1234\nend_of_document 7\ntokenizer bytes\n");
  auto data = Data::open(flags);
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  EXPECT_EQ(data->vocabulary(), 1234);
  flags.eod_mask_loss = true;
  EXPECT_EQ(Data::open(flags)->validation(0, 1)->counted, 4);
  flags.end_of_document = 801;
  EXPECT_EQ(Data::open(flags)->validation(0, 1)->counted, 3);
  flags.vocab_size = 1000;
  EXPECT_NE(refusal(flags).find("--vocab-size 1000 is less than the 1234"), std::string::npos);
  std::filesystem::remove(path("a.tokens"));
  flags.vocab_size = 802;
  const auto batch = Data::open(flags)->validation(0, 1);
  ASSERT_FALSE(batch.ok());
  EXPECT_NE(batch.status().message().find("tokens 801 and 802"), std::string::npos)
      << batch.status().message();
}

TEST_F(TokenFiles, that_are_broken_are_named_with_what_is_wrong) {
  write_indexed(path("a"), counting(100, 0));
  const auto index = [&] {
    std::ifstream file(path("a.idx"), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }();
  const auto says = [&](const std::string& changed, const std::string& words) {
    write(path("a.idx"), changed);
    const std::string text = refusal(flags_of({path("a")}));
    EXPECT_NE(text.find(words), std::string::npos) << text;
    EXPECT_NE(text.find(path("a")), std::string::npos) << text;
  };
  const auto with = [&](std::size_t at, char byte) {
    std::string changed = index;
    changed[at] = byte;
    return changed;
  };
  says("", "it is empty");
  says("MMIDIDX", "does not begin with MMIDIDX");
  says(with(0, 'X'), "does not begin with MMIDIDX");
  says(with(9, 2), "its version is 2");
  says(with(17, 7), "type 7");
  says(with(17, 4), "its index speaks of");
  says(with(25, 0x7f), "are not those of");
  says(index.substr(0, index.size() - 1), "are not those of");
  says(with(index.size() - 8 * 21, 0x7f), "not in order");  // where the validation begins
  write(path("a.idx"), index);
  std::filesystem::resize_file(path("a.bin"), 1998);
  EXPECT_NE(refusal(flags_of({path("a")})).find("has 1998 bytes"), std::string::npos);
  std::filesystem::remove(path("a.bin"));
  EXPECT_NE(refusal(flags_of({path("a")})).find("a.bin cannot be read"), std::string::npos);
}

TEST_F(TokenFiles, that_are_cut_short_while_they_are_in_use_are_named) {
  write_indexed(path("a"), counting(100, 0));
  write(path("text"), std::string(1000, 'x'));
  for (const auto& [name, file] : {std::pair("a", "a.bin"), std::pair("text", "text")}) {
    auto data = Data::open(flags_of({path(name)}));
    ASSERT_TRUE(data.ok()) << data.status().to_string();
    ASSERT_TRUE(data->training(0, 8).ok());
    std::filesystem::resize_file(path(file), 30);
    Status status;
    for (std::uint64_t i = 0; i < 100 && status.ok(); ++i) status = data->training(i, 1).status();
    EXPECT_EQ(status.code(), tutti::Code::io);
    EXPECT_NE(status.message().find(path(file) + " cannot be read: it was cut short"),
              std::string::npos)
        << status.message();
    EXPECT_NE(status.message().find("and has 30 now"), std::string::npos) << status.message();
  }
}

TEST_F(TokenFiles, read_as_bytes_have_their_ends_between_them_and_an_identity_that_stays) {
  write(path("a"), "abc");
  write(path("b"), "");
  write(path("c"), "defghijklmnopqrstuvwxyz");
  const auto tokens = read_bytes({path("a"), path("b"), path("c")});
  ASSERT_TRUE(tokens.ok());
  std::vector<std::int64_t> all((*tokens)->count());
  ASSERT_EQ(all.size(), 29U);
  ASSERT_TRUE((*tokens)->read(0, all.size(), all.data()).ok());
  std::vector<std::int64_t> wanted = {'a', 'b', 'c', kEndOfBytes, kEndOfBytes};
  for (char letter = 'd'; letter <= 'z'; ++letter) wanted.push_back(letter);
  wanted.push_back(kEndOfBytes);
  EXPECT_EQ(all, wanted);
  for (std::uint64_t first = 0; first < all.size(); ++first)
    for (std::uint64_t count = 1; first + count <= all.size(); ++count) {
      std::vector<std::int64_t> some(count);
      ASSERT_TRUE((*tokens)->read(first, count, some.data()).ok());
      ASSERT_TRUE(std::equal(some.begin(), some.end(), wanted.begin() + static_cast<long>(first)));
    }
  // What checkpoints hold: names, then all tokens as 16-bit words, eight bytes at a time.
  std::uint64_t hash = 0, stream = all.size();
  for (const char* name : {"a", "b", "c"}) hash = mix(hash, hash_of_name(path(name)));
  std::vector<std::uint16_t> words(wanted.begin(), wanted.end());
  words.resize((words.size() + 3) / 4 * 4);
  for (std::size_t i = 0; i < words.size(); i += 4) {
    std::uint64_t word = 0;
    std::memcpy(&word, &words[i], sizeof word);
    stream = mix(stream, word);
  }
  EXPECT_EQ((*tokens)->identity(), mix(hash, stream));
}

TEST_F(TokenFiles, and_flags_that_do_not_fit_are_named) {
  write_indexed(path("a"), counting(100, 0));
  for (const char* split : {"", "1,2,3,4", "0,1", "x", "nan", "-1,2", "1,,1"}) {
    Flags flags = flags_of({path("a")});
    flags.split = split;
    EXPECT_NE(refusal(flags).find("--split '"), std::string::npos) << split;
  }
  EXPECT_NE(refusal(flags_of({"1", path("a"), path("a")})).find("go in pairs"), std::string::npos);
  EXPECT_NE(refusal(flags_of({"0", path("a")})).find("'0' is no weight"), std::string::npos);
  EXPECT_NE(refusal(flags_of({path("a.bin"), path("a")})).find("cannot be read"),
            std::string::npos);
  Flags flags = flags_of({path("a")});
  flags.seq_length = 800;
  EXPECT_NE(refusal(flags).find("has no training sequence"), std::string::npos);
}

TEST(Shuffles, are_permutations_that_differ_by_key) {
  for (const std::uint64_t count : {1, 2, 3, 5, 64, 1000, 4097})
    for (const auto& shuffle : {shuffle_in_memory(count), shuffle_by_number(count)}) {
      std::set<std::uint64_t> seen;
      std::vector<std::uint64_t> first, second;
      for (std::uint64_t i = 0; i < count; ++i) first.push_back(shuffle->at(1, i));
      for (std::uint64_t i = 0; i < count; ++i) second.push_back(shuffle->at(2, i));
      seen.insert(first.begin(), first.end());
      EXPECT_EQ(seen.size(), count);
      EXPECT_EQ(*seen.rbegin(), count - 1);
      if (count >= 64) {
        EXPECT_NE(first, second);
      }
    }
  // Neighbours do not stay neighbours.
  auto shuffle = shuffle_by_number(1'000'000'007);
  double sum = 0;
  for (std::uint64_t i = 0; i < 10000; ++i) {
    const auto at = static_cast<double>(shuffle->at(5, i));
    sum += at;
    EXPECT_LT(at, 1'000'000'007);
  }
  EXPECT_NEAR(sum / 10000 / 1'000'000'007, 0.5, 0.02);
}

}  // namespace
}  // namespace pretrain
