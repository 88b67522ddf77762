from tf_capsules.analysis.best_fit import FIRST_REGION, GRAIN, SMALL, BestFit

MEBIBYTE = 2**20


def handles(*regions):
    return 8 * sum(regions) // GRAIN


def test_small_buffers_are_left_to_the_c_library():
    memory = BestFit()
    memory.take("small", SMALL)
    memory.give_back("small")
    assert memory.resident == 0


def test_what_is_free_is_taken_again():
    memory = BestFit()
    for key in range(3):
        memory.take(key, MEBIBYTE)
        memory.give_back(key)
    assert memory.resident == MEBIBYTE + handles(FIRST_REGION)


def test_a_new_region_is_twice_as_large():
    memory = BestFit()
    memory.take("a", 2 * MEBIBYTE)
    memory.take("b", MEBIBYTE)
    assert memory.resident == 3 * MEBIBYTE + handles(FIRST_REGION, 2 * FIRST_REGION)


def test_the_smallest_chunk_that_fits_is_taken():
    memory = BestFit()
    memory.take("large", 20 * MEBIBYTE)
    memory.take("between", MEBIBYTE)  # so that what is free does not meet
    memory.take("small", 3 * MEBIBYTE)
    memory.take("end", MEBIBYTE)
    written = memory.resident
    memory.give_back("large")
    memory.give_back("small")
    memory.take("again", 3 * MEBIBYTE)
    memory.take("large again", 20 * MEBIBYTE)
    assert memory.resident == written


def test_a_chunk_less_than_twice_too_large_is_taken_whole():
    memory = BestFit()
    memory.take("first", 3 * MEBIBYTE)  # all of a region of 4
    memory.take("second", MEBIBYTE)
    assert memory.resident == 4 * MEBIBYTE + handles(2 * FIRST_REGION, 4 * FIRST_REGION)


def test_neighbours_that_are_free_become_one():
    memory = BestFit()
    for key in "abcd":
        memory.take(key, MEBIBYTE)
    written = memory.resident
    for key in "bca":
        memory.give_back(key)
    memory.take("in place of a and b", 2 * MEBIBYTE)
    assert memory.resident == written
