#include "optimized/host/mpi_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "reference/core/error.hpp"

namespace canzona::optimized {
namespace {

constexpr int kTag = 0;
/// MPI counts in int: longer pieces travel as several messages.
constexpr std::int64_t kLongest = std::int64_t{1} << 30;

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(fmt::format("{}: {}", what, text));
}

/// body(offset, bytes) for each message of a piece.
template <class Body>
void for_each_message(std::int64_t bytes, const Body& body) {
  for (std::int64_t offset = 0; offset < bytes; offset += kLongest)
    body(offset, static_cast<int>(std::min(kLongest, bytes - offset)));
}

}  // namespace

MpiCommunicator::MpiCommunicator(MPI_Comm group, Watch watch) : group_(group), watch_(std::move(watch)) {
  MPI_Comm_set_errhandler(group_, MPI_ERRORS_RETURN);
  MPI_Comm_size(group_, &size_);
  MPI_Comm_rank(group_, &rank_);
}

MpiCommunicator::~MpiCommunicator() { MPI_Comm_free(&group_); }

void MpiCommunicator::exchange(const Transfer& transfer) {
  requests_.clear();
  members_.clear();
  expected_.clear();
  begin_receives(transfer);
  begin_sends(transfer);
  copy_own(transfer);
  wait();
  check_arrivals();
}

/// Messages between two members arrive in the order in which they were sent, so that no tags are needed.
void MpiCommunicator::begin_receives(const Transfer& transfer) {
  for (int member = 0; member < size_; ++member) {
    if (member == rank_) continue;
    for (const Transfer::In& piece : transfer.receive[static_cast<std::size_t>(member)]) {
      for_each_message(piece.bytes, [&](std::int64_t offset, int bytes) {
        requests_.emplace_back();
        members_.push_back(member);
        expected_.push_back(bytes);
        check(MPI_Irecv(piece.data.raw() + offset, bytes, MPI_BYTE, member, kTag, group_, &requests_.back()),
              "MPI_Irecv");
      });
    }
  }
}

void MpiCommunicator::begin_sends(const Transfer& transfer) {
  // Each begins with its successor, so that not all send to one at first.
  for (int distance = 1; distance < size_; ++distance) {
    const int member = (rank_ + distance) % size_;
    for (const Transfer::Out& piece : transfer.send[static_cast<std::size_t>(member)]) {
      for_each_message(piece.bytes, [&](std::int64_t offset, int bytes) {
        requests_.emplace_back();
        members_.push_back(member);
        expected_.push_back(-1);
        check(MPI_Isend(piece.data.raw() + offset, bytes, MPI_BYTE, member, kTag, group_, &requests_.back()),
              "MPI_Isend");
      });
    }
  }
}

void MpiCommunicator::copy_own(const Transfer& transfer) const {
  const auto& sent = transfer.send[static_cast<std::size_t>(rank_)];
  const auto& received = transfer.receive[static_cast<std::size_t>(rank_)];
  for (std::size_t piece = 0; piece < sent.size(); ++piece)
    std::copy_n(sent[piece].data.raw(), sent[piece].bytes, received[piece].data.raw());
}

/// Polls: eagerly at first, then with pauses that leave the core to whoever computes.
void MpiCommunicator::wait() {
  constexpr int kEager = 50;
  constexpr auto kPause = std::chrono::microseconds(20);
  constexpr auto kGlance = std::chrono::milliseconds(50);
  statuses_.resize(requests_.size());
  const auto begin = std::chrono::steady_clock::now();
  auto next_glance = begin + kGlance;
  for (int polls = 0;; ++polls) {
    int done = 0;
    const int count = static_cast<int>(requests_.size());
    check(MPI_Testall(count, requests_.data(), &done, statuses_.data()), "an exchange");
    if (done != 0) return;
    if (polls < kEager) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(kPause);
    const auto now = std::chrono::steady_clock::now();
    if (now < next_glance) continue;
    next_glance = now + kGlance;
    watch_.alive();
    if (now - begin > std::chrono::duration<double>(watch_.deadline_seconds)) give_up();
  }
}

void MpiCommunicator::give_up() {
  std::set<int> missing;
  for (std::size_t index = 0; index < requests_.size(); ++index) {
    int done = 0;
    if (requests_[index] != MPI_REQUEST_NULL) MPI_Test(&requests_[index], &done, MPI_STATUS_IGNORE);
    if (requests_[index] != MPI_REQUEST_NULL && done == 0) missing.insert(members_[index]);
  }
  throw Error(
      fmt::format("waited {} s for {}", watch_.deadline_seconds, watch_.describe({missing.begin(), missing.end()})));
}

void MpiCommunicator::check_arrivals() const {
  for (std::size_t index = 0; index < requests_.size(); ++index) {
    if (expected_[index] < 0) continue;
    int bytes = 0;
    MPI_Get_count(&statuses_[index], MPI_BYTE, &bytes);
    if (bytes != expected_[index])
      throw Error(fmt::format("a piece of {} bytes where {} were expected", bytes, expected_[index]));
  }
}

}  // namespace canzona::optimized
