// Containers over ids: a range of ids from 0, and a vector that is indexed by an id. Thread rule:
// values.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace weir {

// An IdRange holds the ids from 0 to below `size`, for loops.
template <typename Id>
class IdRange {
 public:
  class Iterator {
   public:
    constexpr explicit Iterator(Id id) : id_(id) {}
    constexpr Id operator*() const { return id_; }
    constexpr Iterator& operator++() {
      id_ = Id(id_.value() + 1);
      return *this;
    }
    friend constexpr bool operator==(const Iterator&, const Iterator&) = default;

   private:
    Id id_;
  };

  constexpr explicit IdRange(typename Id::Value size) : size_(size) {}
  constexpr Iterator begin() const { return Iterator(Id(0)); }
  constexpr Iterator end() const { return Iterator(Id(size_)); }

 private:
  typename Id::Value size_;
};

// An IdVector is a std::vector whose elements are named by ids from 0. Precondition of the
// subscript: the vector has an element of that id.
template <typename Id, typename T>
class IdVector : private std::vector<T> {
  using Base = std::vector<T>;

 public:
  using Base::Base;
  using typename Base::const_iterator;
  using typename Base::iterator;
  using typename Base::value_type;

  using Base::assign;
  using Base::back;
  using Base::begin;
  using Base::clear;
  using Base::data;
  using Base::emplace_back;
  using Base::empty;
  using Base::end;
  using Base::front;
  using Base::pop_back;
  using Base::push_back;
  using Base::reserve;
  using Base::resize;
  using Base::size;

  typename Base::reference operator[](Id id) { return Base::operator[](Index(id)); }
  typename Base::const_reference operator[](Id id) const { return Base::operator[](Index(id)); }

  void swap(IdVector& other) { Base::swap(other); }

  // Returns the id that the next element to be added gets.
  Id next_id() const { return Id(static_cast<typename Id::Value>(size())); }
  // Returns the ids of all elements, in order.
  IdRange<Id> ids() const { return IdRange<Id>(next_id().value()); }
  // Returns whether the vector has an element of that id.
  bool Has(Id id) const { return Index(id) < size(); }

  friend bool operator==(const IdVector&, const IdVector&) = default;

 private:
  static size_t Index(Id id) { return static_cast<size_t>(id.value()); }
};

}  // namespace weir
