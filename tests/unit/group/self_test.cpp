// Every launcher played by a map of variables; no process is started.
#include "group/self.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <thread>

#include "core/secret.hpp"
#include "core/sockets.hpp"

namespace tutti::group {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Variables = std::map<std::string, std::string>;

Result<Self> found(const Variables& variables) {
  return find_self([&](const std::string& name) -> std::optional<std::string> {
    const auto entry = variables.find(name);
    if (entry == variables.end()) return std::nullopt;
    return entry->second;
  });
}

Self self_of(const Variables& variables) {
  auto self = found(variables);
  EXPECT_TRUE(self.ok()) << self.status().to_string();
  return self.ok() ? *self : Self{};
}

// That the search fails, and that the message names all of these words.
void expect_refused(const Variables& variables, const std::vector<std::string>& words) {
  const auto self = found(variables);
  ASSERT_FALSE(self.ok());
  EXPECT_EQ(self.status().code(), Code::invalid_argument);
  for (const std::string& word : words) EXPECT_THAT(self.status().message(), HasSubstr(word));
}

void expect_numbers(const Self& self, int rank, int size, int local_rank, int local_size) {
  EXPECT_EQ(self.rank, rank);
  EXPECT_EQ(self.size, size);
  EXPECT_EQ(self.local_rank, local_rank);
  EXPECT_EQ(self.local_size, local_size);
}

const Variables kTorchrun = {{"RANK", "1"},
                             {"WORLD_SIZE", "2"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "host"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "none"}};

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

TEST(FindSelf, without_a_launcher_it_is_rank_0_of_1_and_meets_nobody) {
  const Self self = self_of({});
  expect_numbers(self, 0, 1, 0, 1);
  EXPECT_EQ(self.launcher, "none");
  EXPECT_EQ(self.store_address, "");
}

TEST(FindSelf, variables_set_to_nothing_are_not_set) {
  EXPECT_EQ(self_of({{"RANK", ""}, {"WORLD_SIZE", ""}}).launcher, "none");
}

TEST(FindSelf, tutti_run_gives_store_and_secret) {
  const auto secret = make_secret_descriptor(std::string(32, 'k'));
  ASSERT_TRUE(secret.ok());
  const Descriptor guard(*secret);
  const Variables variables = {{"TUTTI_RANK", "2"},
                               {"TUTTI_SIZE", "4"},
                               {"TUTTI_LOCAL_RANK", "0"},
                               {"TUTTI_LOCAL_SIZE", "2"},
                               {"TUTTI_STORE", "10.0.0.1:7"},
                               {"TUTTI_JOB", "abc"},
                               {"TUTTI_SECRET_FD", std::to_string(*secret)}};
  for (int time = 0; time < 2; ++time) {  // a program may ask twice
    const Self self = self_of(variables);
    expect_numbers(self, 2, 4, 0, 2);
    EXPECT_EQ(self.launcher, "tutti");
    EXPECT_EQ(self.store_address, "10.0.0.1:7");
    EXPECT_EQ(self.secret.text(), std::string(32, 'k'));
    EXPECT_EQ(self.job, "abc");
    EXPECT_FALSE(self.serves_store);
  }
}

TEST(FindSelf, torchrun) {
  const Self self = self_of(kTorchrun);
  expect_numbers(self, 1, 2, 1, 2);
  EXPECT_EQ(self.launcher, "torchrun");
  EXPECT_THAT(self.store_address, StartsWith("@tutti-" + std::to_string(::geteuid()) + "-"));
  EXPECT_FALSE(self.serves_store);
  EXPECT_TRUE(self_of(with(kTorchrun, {{"RANK", "0"}, {"LOCAL_RANK", "0"}})).serves_store);
}

TEST(FindSelf, a_master_that_cannot_be_is_refused) {
  for (const char* port : {"0", "99999", "-1", "abc", "", "29500x"})
    expect_refused(with(kTorchrun, {{"MASTER_PORT", port}}), {"MASTER_PORT", port});
  for (const char* host : {"", " "})
    expect_refused(with(kTorchrun, {{"MASTER_ADDR", host}}), {"MASTER_ADDR"});
  EXPECT_TRUE(found(with(kTorchrun, {{"MASTER_PORT", "65535"}})).ok());
}

TEST(FindSelf, open_mpi) {
  const Self self = self_of({{"OMPI_COMM_WORLD_RANK", "3"},
                             {"OMPI_COMM_WORLD_SIZE", "4"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                             {"PMIX_RANK", "3"},
                             {"PMIX_NAMESPACE", "prterun-host-42@1"}});
  expect_numbers(self, 3, 4, 3, 4);
  EXPECT_EQ(self.launcher, "openmpi");
  EXPECT_THAT(self.job, HasSubstr("prterun-host-42@1"));
}

TEST(FindSelf, pmix_under_slurm_takes_its_size_from_the_step) {
  const Self self = self_of({{"PMIX_RANK", "3"},
                             {"SLURM_PROCID", "3"},
                             {"SLURM_NTASKS", "4"},
                             {"SLURM_LOCALID", "3"},
                             {"SLURM_STEP_ID", "0"},
                             {"SLURM_JOB_ID", "7"},
                             {"SLURM_STEP_TASKS_PER_NODE", "4"}});
  expect_numbers(self, 3, 4, 3, 4);
  EXPECT_EQ(self.launcher, "pmix");
}

TEST(FindSelf, pmi) {
  const Self self = self_of(
      {{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "3"}});
  expect_numbers(self, 1, 3, 1, 3);
  EXPECT_EQ(self.launcher, "pmi");
}

const Variables kSlurm = {{"SLURM_PROCID", "1"},  {"SLURM_NTASKS", "2"},
                          {"SLURM_LOCALID", "1"}, {"SLURM_STEP_NODELIST", "a"},
                          {"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "0"},
                          {"SLURM_NODEID", "0"},  {"SLURM_STEP_TASKS_PER_NODE", "2"}};

TEST(FindSelf, slurm) {
  const Self self = self_of(kSlurm);
  expect_numbers(self, 1, 2, 1, 2);
  EXPECT_EQ(self.launcher, "slurm");
  EXPECT_EQ(self.job, "slurm-77.0");
}

TEST(FindSelf, slurm_counts_the_tasks_of_its_own_node) {
  const Variables job = with(kSlurm, {{"SLURM_PROCID", "6"},
                                      {"SLURM_NTASKS", "7"},
                                      {"SLURM_LOCALID", "0"},
                                      {"SLURM_NODEID", "3"},
                                      {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                                      {"TUTTI_RENDEZVOUS", "@somewhere"}});
  expect_numbers(self_of(job), 6, 7, 0, 1);
  expect_numbers(
      self_of(with(job, {{"SLURM_NODEID", "2"}, {"SLURM_PROCID", "5"}, {"SLURM_LOCALID", "1"}})), 5,
      7, 1, 2);
}

TEST(FindSelf, a_slurm_batch_script_is_not_a_rank) {
  EXPECT_EQ(
      self_of({{"SLURM_JOB_ID", "77"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}).launcher,
      "none");
}

TEST(FindSelf, mpirun_inside_salloc_wins_over_the_inherited_slurm_rank) {
  const Self self = self_of(with(kSlurm, {{"SLURM_PROCID", "0"},
                                          {"OMPI_COMM_WORLD_RANK", "1"},
                                          {"OMPI_COMM_WORLD_SIZE", "2"},
                                          {"OMPI_MCA_ess_base_jobid", "1234"}}));
  EXPECT_EQ(self.launcher, "openmpi");
  EXPECT_EQ(self.rank, 1);
  EXPECT_THAT(self.job, HasSubstr("1234"));
}

TEST(FindSelf, the_first_launcher_wins) {
  Variables all = with(kSlurm, {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}});
  EXPECT_EQ(self_of(all).launcher, "pmi");
  all = with(all, {{"PMIX_RANK", "0"}});
  EXPECT_EQ(self_of(all).launcher, "pmix");
  all = with(all, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  EXPECT_EQ(self_of(all).launcher, "openmpi");
  all = with(all, kTorchrun);
  EXPECT_EQ(self_of(all).launcher, "torchrun");
  all = with(all, {{"TUTTI_RANK", "1"}, {"TUTTI_SIZE", "2"}});
  EXPECT_EQ(self_of(all).launcher, "tutti");
}

TEST(FindSelf, contradictions_name_both_variables) {
  expect_refused({{"RANK", "1"}}, {"RANK", "WORLD_SIZE"});
  expect_refused({{"WORLD_SIZE", "2"}}, {"RANK", "WORLD_SIZE"});
  expect_refused({{"TUTTI_RANK", "1"}}, {"TUTTI_RANK", "TUTTI_SIZE"});
  expect_refused({{"PMIX_RANK", "1"}}, {"PMIX_RANK", "PMI_SIZE"});
  expect_refused(with(kTorchrun, {{"RANK", "2"}}), {"RANK=2", "WORLD_SIZE=2"});
  expect_refused(with(kTorchrun, {{"LOCAL_RANK", "2"}}), {"LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2"});
  expect_refused(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "3"}}),
                 {"LOCAL_WORLD_SIZE=3", "WORLD_SIZE=2"});
  expect_refused({{"TUTTI_RANK", "0"}, {"TUTTI_SIZE", "2"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}},
                 {"TUTTI_RANK=0", "RANK=1"});
  expect_refused({{"TUTTI_RANK", "0"}, {"TUTTI_SIZE", "2"}, {"RANK", "0"}, {"WORLD_SIZE", "3"}},
                 {"TUTTI_SIZE=2", "WORLD_SIZE=3"});
  expect_refused({{"TUTTI_STORE", "127.0.0.1:5"}}, {"TUTTI_STORE", "TUTTI_RANK"});
}

TEST(FindSelf, words_that_are_no_numbers_are_quoted) {
  for (const char* word : {"x", "-1", "1.5", "1 ", "99999999999"})
    expect_refused(with(kTorchrun, {{"RANK", word}}), {"RANK", word});
  expect_refused(with(kTorchrun, {{"WORLD_SIZE", "0"}}), {"WORLD_SIZE", "0"});
}

TEST(FindSelf, ranks_of_one_job_meet_and_jobs_stay_apart) {
  const auto address = [](const Variables& more) {
    return self_of(with(kTorchrun, more)).store_address;
  };
  EXPECT_EQ(address({}), address({{"RANK", "0"}, {"LOCAL_RANK", "0"}}));
  EXPECT_NE(address({}), address({{"MASTER_PORT", "29501"}}));
  EXPECT_NE(address({}), address({{"TORCHELASTIC_RESTART_COUNT", "1"}}));
  EXPECT_NE(address({{"TUTTI_JOB", "a"}}), address({{"TUTTI_JOB", "b"}}));
  const auto of_pmix = [](const char* rank, const char* id) {
    return self_of({{"PMIX_RANK", rank}, {"PMIX_SIZE", "2"}, {"PMIX_ID", id}}).store_address;
  };
  EXPECT_EQ(of_pmix("0", "job-7.0"), of_pmix("1", "job-7.1"));
}

TEST(FindSelf, several_hosts_without_a_meeting_place_are_told_what_to_set) {
  expect_refused(with(kTorchrun, {{"WORLD_SIZE", "4"}}), {"TUTTI_RENDEZVOUS", "TUTTI_SECRET_FILE"});
  expect_refused(with(kTorchrun, {{"WORLD_SIZE", "4"}, {"TUTTI_RENDEZVOUS", "10.0.0.1:29400"}}),
                 {"TUTTI_RENDEZVOUS", "TUTTI_SECRET_FILE"});
}

class SecretFile : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tutti_self_test_XXXXXX";
    const int descriptor = ::mkstemp(name);
    ASSERT_GE(descriptor, 0);
    ::close(descriptor);
    path_ = name;
    std::ofstream(path_) << std::string(32, 's');
  }
  void TearDown() override { ::unlink(path_.c_str()); }
  Variables job() const {
    return with(kTorchrun, {{"WORLD_SIZE", "4"},
                            {"TUTTI_RENDEZVOUS", "10.0.0.1:29400"},
                            {"TUTTI_SECRET_FILE", path_}});
  }
  std::string path_;
};

TEST_F(SecretFile, with_rendezvous_rank_0_serves_several_hosts) {
  Self self = self_of(job());
  EXPECT_EQ(self.store_address, "10.0.0.1:29400");
  EXPECT_EQ(self.secret.text(), std::string(32, 's'));
  EXPECT_FALSE(self.serves_store);
  self = self_of(with(job(), {{"RANK", "0"}, {"LOCAL_RANK", "0"}}));
  EXPECT_TRUE(self.serves_store);
}

TEST_F(SecretFile, that_others_can_read_is_refused) {
  for (const mode_t mode : {0644, 0640, 0604, 0660}) {
    ::chmod(path_.c_str(), mode);
    expect_refused(job(), {path_, "chmod 600"});
  }
  ::chmod(path_.c_str(), 0400);
  EXPECT_TRUE(found(job()).ok());
}

TEST_F(SecretFile, of_somebody_else_is_refused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(::chown(path_.c_str(), 12345, static_cast<gid_t>(-1)), 0);
  expect_refused(job(), {path_, "12345"});
}

TEST_F(SecretFile, that_is_missing_or_too_short_is_refused) {
  std::ofstream(path_) << "short";
  expect_refused(job(), {path_, "16"});
  expect_refused(with(job(), {{"TUTTI_SECRET_FILE", "/no/such/file"}}), {"/no/such/file"});
}

TEST_F(SecretFile, counts_where_the_launchers_descriptor_was_closed) {
  const auto self = found(with(job(), {{"TUTTI_SECRET_FD", "999"}}));
  ASSERT_TRUE(self.ok()) << self.status().to_string();
  EXPECT_EQ(self->secret.text(), found(job())->secret.text());
}

TEST(FindSelf, a_secret_descriptor_that_was_closed_is_explained) {
  const auto self = found({{"TUTTI_RANK", "0"},
                           {"TUTTI_SIZE", "1"},
                           {"TUTTI_STORE", "127.0.0.1:1"},
                           {"TUTTI_SECRET_FD", "999"}});
  ASSERT_FALSE(self.ok());
  EXPECT_THAT(self.status().message(), HasSubstr("TUTTI_SECRET_FD=999"));
}

TEST(Meet, a_rank_on_its_own_gets_a_store_without_a_server) {
  const auto meeting = meet(self_of({}), std::chrono::seconds(1));
  ASSERT_TRUE(meeting.ok());
  EXPECT_TRUE(meeting->store->set("key", "value").ok());
  EXPECT_EQ(meeting->server, nullptr);
}

TEST(Meet, ranks_of_one_host_meet_where_rank_0_serves) {
  const std::string job = "self-test-" + std::to_string(::getpid());
  const Variables other = with(kTorchrun, {{"TUTTI_JOB", job}});
  const Variables first = with(other, {{"RANK", "0"}, {"LOCAL_RANK", "0"}});
  std::string read;
  std::thread rank_1([&] {  // comes before the server is there
    const auto meeting = meet(self_of(other), std::chrono::seconds(30));
    ASSERT_TRUE(meeting.ok()) << meeting.status().to_string();
    const auto value = meeting->store->get("greeting", std::chrono::seconds(30));
    ASSERT_TRUE(value.ok()) << value.status().to_string();
    read = *value;
  });
  const auto meeting = meet(self_of(first), std::chrono::seconds(30));
  EXPECT_TRUE(meeting.ok()) << meeting.status().to_string();
  if (meeting.ok()) {
    EXPECT_NE(meeting->server, nullptr);
    EXPECT_TRUE(meeting->store->set("greeting", "hello").ok());
    // A second group of the same process finds the same store.
    const auto again = meet(self_of(first), std::chrono::seconds(30));
    EXPECT_TRUE(again.ok());
    EXPECT_TRUE(again.ok() && again->store->get("greeting", std::chrono::seconds(1)).ok());
  }
  rank_1.join();
  EXPECT_EQ(read, "hello");
}

TEST(Meet, a_store_that_does_not_come_is_explained) {
  const auto meeting = meet(self_of(with(kTorchrun, {{"TUTTI_JOB", "nobody-serves-this"}})),
                            std::chrono::milliseconds(50));
  ASSERT_FALSE(meeting.ok());
  EXPECT_THAT(meeting.status().message(), HasSubstr("rank 1 of 2"));
  EXPECT_THAT(meeting.status().message(), HasSubstr("TUTTI_RENDEZVOUS"));
}

}  // namespace
}  // namespace tutti::group
