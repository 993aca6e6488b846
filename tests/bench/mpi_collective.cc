// Answers the questions of collective_bench.cc with MPI: mpirun -np 2 mpi_collective FOLDER. Bazel
// does not build this file: tools/bench compiles it with mpicxx if that is installed.
#include <mpi.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

class Collectives {
 public:
  explicit Collectives(int rank) : rank_(rank) {}

  // Returns one operation on a whole tensor of `bytes` bytes, or an empty function if there is no
  // such operation.
  std::function<void()> Find(const std::string& name, long bytes) {
    const int elements = static_cast<int>(bytes / 4);
    send_.assign(elements, 1.0f);
    receive_.assign(elements, 0.0f);
    float *send = send_.data(), *receive = receive_.data();
    if (name == "all_reduce") {
      return [=] { MPI_Allreduce(send, receive, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
    }
    if (name == "reduce_scatter") {
      return [=] {
        MPI_Reduce_scatter_block(send, receive, elements / 2, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      };
    }
    if (name == "all_gather") {
      return [=] {
        MPI_Allgather(send, elements / 2, MPI_FLOAT, receive, elements / 2, MPI_FLOAT,
                      MPI_COMM_WORLD);
      };
    }
    if (name == "all_to_all") {
      return [=] {
        MPI_Alltoall(send, elements / 4, MPI_FLOAT, receive, elements / 4, MPI_FLOAT,
                     MPI_COMM_WORLD);
      };
    }
    if (name == "move" && rank_ == 0)
      return [=] { MPI_Send(send, elements, MPI_FLOAT, 1, 0, MPI_COMM_WORLD); };
    if (name == "move") {
      return
          [=] { MPI_Recv(receive, elements, MPI_FLOAT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE); };
    }
    return nullptr;
  }

 private:
  const int rank_;
  std::vector<float> send_, receive_;
};

double Seconds(const std::function<void()>& run, long count) {
  for (int i = 0; i < 3; ++i) run();
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  for (long i = 0; i < count; ++i) run();
  return MPI_Wtime() - begin;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const std::string folder = argc == 2 ? argv[1] : ".";
  std::ifstream commands(folder + "/commands." + std::to_string(rank));
  std::ofstream answers;
  if (rank == 0) answers.open(folder + "/answers");
  Collectives collectives(rank);
  std::string line;
  while (std::getline(commands, line) && line != "end") {
    std::istringstream words(line);
    std::string name;
    long bytes = 0, count = 0;
    words >> name >> bytes >> count;
    const std::function<void()> run = collectives.Find(name, bytes);
    if (run == nullptr) {
      std::cerr << "mpi_collective: no such command: " << line << "\n";
      MPI_Abort(MPI_COMM_WORLD, 2);
    }
    const double seconds = Seconds(run, count);
    if (rank == 0) answers << seconds << std::endl;
  }
  MPI_Finalize();
}
