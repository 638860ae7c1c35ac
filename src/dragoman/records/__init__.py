"""One record for each exchange, in SQLite or PostgreSQL: who asked and answered, tokens, times, tool calls.

Records never contain messages, prompts, arguments or results.

    record    the record as values
    schema    tables and views of the database
    batch     writes records
    database  opens the database
    writer    the queue and the thread that writes
    retention deletes old records
"""
