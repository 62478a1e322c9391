# The accounts of the compose file. MySQL's image sources this once, when it has made its data
# folder; where that is there already, make them by hand.
# shellcheck shell=bash

password() { sed "s/['\\\\]/\\\\&/g" "/run/secrets/$1"; }
app=$(password app-password)
sqlcache=$(password sqlcache-password)

docker_process_sql <<END
CREATE USER app@'%' IDENTIFIED BY '$app';
GRANT SELECT, INSERT, UPDATE, DELETE ON shop.* TO app@'%';

CREATE USER sqlcache@'%' IDENTIFIED BY '$sqlcache';
GRANT SELECT, SHOW VIEW, TRIGGER ON *.* TO sqlcache@'%';
GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO sqlcache@'%';
END
