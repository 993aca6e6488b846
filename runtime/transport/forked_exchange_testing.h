// Lets forked processes of a test or benchmark exchange addresses. Thread rule: any process or
// thread; construct before the fork.
#pragma once

#include <pthread.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "runtime/transport/exchange.h"

namespace weir::transport {

// A ForkedExchange is an Exchange in memory that forked processes share. A process that dies while
// publishing may leave the memory locked: kill only processes that have connected.
class ForkedExchange final : public Exchange {
 public:
  static constexpr int kEntriesMax = 32;
  static constexpr size_t kValueMax = 64 << 10;

  ForkedExchange() {
    void* memory =
        ::mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    table_ = new (memory) Table();
    pthread_mutexattr_t mutex;
    ::pthread_mutexattr_init(&mutex);
    ::pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
    ::pthread_mutex_init(&table_->mutex, &mutex);
    pthread_condattr_t condition;
    ::pthread_condattr_init(&condition);
    ::pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED);
    ::pthread_cond_init(&table_->published, &condition);
  }
  ~ForkedExchange() override { ::munmap(table_, sizeof(Table)); }

  absl::Status Publish(const std::string& key, const std::string& value) override {
    ::pthread_mutex_lock(&table_->mutex);
    absl::Status status;
    if (table_->num_entries == kEntriesMax || key.size() >= sizeof(Entry::key) ||
        value.size() > kValueMax) {
      status = absl::ResourceExhaustedError(key);
    } else {
      Entry& entry = table_->entries[table_->num_entries++];
      std::strcpy(entry.key, key.c_str());
      entry.size = value.size();
      std::memcpy(entry.value, value.data(), value.size());
    }
    ::pthread_cond_broadcast(&table_->published);
    ::pthread_mutex_unlock(&table_->mutex);
    return status;
  }
  absl::StatusOr<std::string> Fetch(const std::string& key) override {
    ::pthread_mutex_lock(&table_->mutex);
    const Entry* found = nullptr;
    while ((found = Find(key)) == nullptr) ::pthread_cond_wait(&table_->published, &table_->mutex);
    std::string value(found->value, found->size);
    ::pthread_mutex_unlock(&table_->mutex);
    return value;
  }

 private:
  struct Entry {
    char key[64];
    size_t size;
    char value[kValueMax];
  };
  struct Table {
    pthread_mutex_t mutex;
    pthread_cond_t published;
    int num_entries = 0;
    Entry entries[kEntriesMax];
  };
  const Entry* Find(const std::string& key) const {
    for (int i = 0; i < table_->num_entries; ++i) {
      if (key == table_->entries[i].key) return &table_->entries[i];
    }
    return nullptr;
  }
  Table* table_;
};

}  // namespace weir::transport
