#!/bin/bash
# Run a broker with the settings that variables give, as Apache's image does: KAFKA_NODE_ID is node.id.
set -euo pipefail

settings=/tmp/server.properties
env | sed -nE 's/^KAFKA_([A-Z_]+)=(.*)$/\1 \2/p' | while read -r name value; do
    name=${name,,}
    printf '%s=%s\n' "${name//_/.}" "$value"
done >"$settings"

java=$(find /opt/kafkabus -path '*/bin/java' | head -n 1)
jars=$(dirname "$(find "$KAFKABUS_CACHE" -name 'kafka_2.13-*.jar' | head -n 1)")
if [[ ! -e $KAFKA_LOG_DIRS/meta.properties ]]; then
    "$java" -cp "$jars/*" kafka.tools.StorageTool format --cluster-id "${CLUSTER_ID:-4L6g3nShT-eMCtK--X86sw}" --config "$settings"
fi
exec "$java" -Xmx512m -cp "$jars/*" kafka.Kafka "$settings"
